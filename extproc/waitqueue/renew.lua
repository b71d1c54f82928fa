--[[
  Keep a replica and its holdings alive, and say where each holding stands.

  An owner is believed that holds what waits here: it was granted by itself while the store was away.

  ARGV[1]  now_ms        test clock, or '' for Redis TIME
  ARGV[2]  epoch         the store's epoch as the caller knows it, or 0
  ARGV[3]  replica       who renews
  ARGV[4]  lease_ms      lifetime of a lease
  ARGV[5]  heartbeat_ms  lifetime of a waiter, and of a replica
  ARGV[6...]             three for each holding: id, attempt, and 1 for a lease or 0 for a waiter

  Returns {epoch, replicas alive, 1 if the capacity is known, standing, waited_ms, standing, waited_ms, ...}, two for
  each holding; standings as `Standing` in extproc/admission/ports.py.
]]
-- @include keys
-- @include now
-- @include totals
-- @include record
-- @include dequeue
-- @include hold
local UNKNOWN, WAITING, HELD, TAKEN_OVER = 0, 1, 2, 3
local lease_ms, heartbeat_ms = tonumber(ARGV[4]), tonumber(ARGV[5])

local function renew(id, r, attempt, owner_holds)
  if not r then
    return UNKNOWN
  elseif r.attempt ~= attempt then
    return TAKEN_OVER
  elseif redis.call('ZSCORE', leases, id) then
    redis.call('ZADD', leases, now + lease_ms, id)
    return HELD
  elseif owner_holds then
    dequeue(id, r)
    hold(id, r, lease_ms)
    return HELD
  end
  redis.call('ZADD', heartbeats, now + heartbeat_ms, id)
  return WAITING
end

redis.call('ZADD', replicas, now + heartbeat_ms, ARGV[3])
redis.call('PEXPIRE', replicas, KEY_TTL_MS)
local reply = { epoch, redis.call('ZCOUNT', replicas, '(' .. now, '+inf'), redis.call('EXISTS', capacity) }
for i = 6, #ARGV, 3 do
  local r = read_record(ARGV[i])
  reply[#reply + 1] = renew(ARGV[i], r, ARGV[i + 1], ARGV[i + 2] == '1')
  reply[#reply + 1] = r and r.waited_ms or 0
end
-- @include save
return reply
