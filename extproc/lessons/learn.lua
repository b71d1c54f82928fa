--[[
  Add lessons to the habits of one tenant with one model; each response teaches once.

  KEYS[1]  taught   sorted set  ticket of a response by the ms until which a second lesson from it is refused
  KEYS[2]  known    sorted set  habit (model and tenant) by the ms of its last lesson
  KEYS[3]  recent   hash        counter -> count, halved whenever RECENT lessons are in it
  KEYS[4]  lasting  hash        counter -> count, halved whenever LASTING lessons are in it

  ARGV[1]  now_ms   test clock, or '' for Redis TIME
  ARGV[2]  habit    member of `known`
  ARGV[3]  lessons  JSON: a list of [ticket, [counter, increment, counter, increment, ...] ]

  Returns the number of lessons that were new. Where MAX_KNOWN habits are known, further ones are not begun.
]]
local taught, known, recent, lasting = unpack(KEYS)
local RECENT, LASTING = 100, 2000
local TAUGHT_MS, KNOWN_MS = 600000, 1209600000 -- ten minutes, a fortnight
local MAX_KNOWN = 1000

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- What the halves lose goes on to the next counter, so that rare ones do not all fade at once.
local function halve(key)
  local left, counters = 0, redis.call('HGETALL', key)
  for i = 1, #counters, 2 do
    local count = tonumber(counters[i + 1]) + left
    left = count % 2
    if count < 2 then
      redis.call('HDEL', key, counters[i])
    else
      redis.call('HSET', key, counters[i], math.floor(count / 2))
    end
  end
end

local function add(key, counters, bound)
  for i = 1, #counters, 2 do
    local count = redis.call('HINCRBY', key, counters[i], counters[i + 1])
    if counters[i] == 'n' and count >= bound then
      halve(key)
    end
  end
  redis.call('PEXPIRE', key, KNOWN_MS)
end

redis.call('ZREMRANGEBYSCORE', taught, '-inf', now)
redis.call('ZREMRANGEBYSCORE', known, '-inf', now - KNOWN_MS)
if not redis.call('ZSCORE', known, ARGV[2]) and redis.call('ZCARD', known) >= MAX_KNOWN then
  return 0
end
local learnt = 0
for _, lesson in ipairs(cjson.decode(ARGV[3])) do
  if redis.call('ZADD', taught, 'NX', now + TAUGHT_MS, lesson[1]) == 1 then
    add(recent, lesson[2], RECENT)
    add(lasting, lesson[2], LASTING)
    learnt = learnt + 1
  end
end
if learnt > 0 then
  redis.call('PEXPIRE', taught, TAUGHT_MS)
  redis.call('ZADD', known, now, ARGV[2])
  redis.call('PEXPIRE', known, KNOWN_MS)
end
return learnt
