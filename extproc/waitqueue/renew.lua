--[[
  Keep a replica and its holdings alive, and say where each holding stands.

  ARGV[1]  now_ms        test clock, or '' for Redis TIME
  ARGV[2]  epoch         the store's epoch as the caller knows it, or ''
  ARGV[3]  replica       who renews
  ARGV[4]  lease_ms      lifetime of a lease
  ARGV[5]  heartbeat_ms  lifetime of a waiter, and of a replica
  ARGV[6...]             three for each holding: id, attempt, and 1 for a lease or 0 for a waiter

  Returns {epoch, replicas alive, standing, waited_ms, standing, waited_ms, ...}, two for each holding;
  standings as `Standing` in extproc/admission/ports.py.
]]
-- @include keys
-- @include now
-- @include record
-- @include totals
-- @include ledger
local UNKNOWN, WAITING, HELD, TAKEN_OVER = 0, 1, 2, 3
local replica, lease_ms, heartbeat_ms = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

redis.call('ZADD', replicas, now + heartbeat_ms, replica)
redis.call('PEXPIRE', replicas, KEY_TTL_MS)

local reply = { total.epoch, redis.call('ZCOUNT', replicas, now, '+inf') }
for i = 6, #ARGV, 3 do
  local id, attempt = ARGV[i], ARGV[i + 1]
  local r = read_record(id)
  local standing = UNKNOWN
  if r and r.attempt == attempt and ARGV[i + 2] == '1' and is_waiting(id) then
    dequeue(id, r) -- granted while the store was away: what an owner says it holds is held
    hold(id, r, lease_ms)
  end
  if r and r.attempt ~= attempt then
    standing = TAKEN_OVER
  elseif r and is_waiting(id) then
    redis.call('ZADD', heartbeats, now + heartbeat_ms, id)
    standing = WAITING
  elseif r then
    redis.call('ZADD', leases, now + lease_ms, id)
    standing = HELD
  end
  reply[#reply + 1] = standing
  reply[#reply + 1] = r and r.waited_ms or 0
end
save_totals()
return reply
