--[[
  Keep a replica and its holdings alive, and say where each holding stands.

  An owner is believed that holds what waits here: it was granted by itself while the store was away.

  ARGV[1]  now_ms        test clock, or '' for Redis TIME
  ARGV[2]  epoch         the store's epoch as the caller knows it, or 0
  ARGV[3]  replica       who renews
  ARGV[4]  lease_ms      lifetime of a lease
  ARGV[5]  heartbeat_ms  lifetime of a waiter, and of a replica
  ARGV[6...]             four for each holding: id, attempt, 1 for a lease or 0 for a waiter, and the tokens that a
                         lease shall have if there is room, or 0

  Returns {epoch, replicas alive, 1 if the capacity is known, standing, waited_ms, tokens, ...}, three for each
  holding; standings as `Standing` in extproc/admission/ports.py, tokens as booked.
]]
-- @include keys
-- @include now
-- @include totals
-- @include record
-- @include dequeue
-- @include hold
-- @include room
local UNKNOWN, WAITING, HELD, TAKEN_OVER = 0, 1, 2, 3
local lease_ms, heartbeat_ms = tonumber(ARGV[4]), tonumber(ARGV[5])

-- A full pool admits nobody, whether or not what it holds was booked: room for growth is all that is taken.
local function grow(id, r, wanted)
  local limit = read_capacity()
  local more = limit.is_known and math.min(wanted - r.tokens, limit.tokens - used) or 0
  if more > 0 then
    r.tokens, used = r.tokens + more, used + more
    redis.call('HSET', reservations, id, r.tokens)
    redis.call('HSET', requests, id, cmsgpack.pack(r))
  end
end

local function renew(id, r, attempt, owner_holds, wanted)
  if not r then
    return UNKNOWN
  elseif r.attempt ~= attempt then
    return TAKEN_OVER
  elseif redis.call('ZSCORE', leases, id) then
    redis.call('ZADD', leases, now + lease_ms, id)
  elseif owner_holds then
    dequeue(id, r)
    hold(id, r, lease_ms)
  else
    redis.call('ZADD', heartbeats, now + heartbeat_ms, id)
    return WAITING
  end
  if wanted > r.tokens then
    grow(id, r, wanted)
  end
  return HELD
end

redis.call('ZADD', replicas, now + heartbeat_ms, ARGV[3])
redis.call('PEXPIRE', replicas, KEY_TTL_MS)
local reply = { epoch, redis.call('ZCOUNT', replicas, '(' .. now, '+inf'), redis.call('EXISTS', capacity) }
for i = 6, #ARGV, 4 do
  local r = read_record(ARGV[i])
  reply[#reply + 1] = renew(ARGV[i], r, ARGV[i + 1], ARGV[i + 2] == '1', tonumber(ARGV[i + 3]))
  reply[#reply + 1] = r and r.waited_ms or 0
  reply[#reply + 1] = r and r.tokens or 0
end
-- @include save
return reply
