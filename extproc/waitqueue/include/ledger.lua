--[[
  Move requests in and out of the queue and the leases, and the totals with them. Nothing else writes those keys.

  Needs: keys, now, record, totals.
]]
local CLASS_SPAN = 4398046511104 -- 2^42, see extproc/domain/rank.py

-- The place of a request that arrives now: class first, arrival last. Arrivals follow the clock, so that a store that
-- lost its memory does not put newcomers before those who wait already.
local function next_rank(class_rank)
  total.arrival = math.max(now, total.arrival + 1)
  return class_rank * CLASS_SPAN + total.arrival
end

local function is_waiting(id)
  return redis.call('ZSCORE', waiting, id) and true
end

local function queue(id, r, heartbeat_ms)
  redis.call('ZADD', waiting, r.rank, id)
  redis.call('ZADD', heartbeats, now + heartbeat_ms, id)
  write_record(id, r)
  redis.call('HINCRBY', totals, 'depth:' .. r.class_rank, 1)
  redis.call('HINCRBY', totals, 'queued:' .. r.class_rank, r.tokens)
  for _, key in ipairs({ waiting, heartbeats, requests }) do
    redis.call('PEXPIRE', key, KEY_TTL_MS)
  end
end

local function dequeue(id, r)
  redis.call('ZREM', waiting, id)
  redis.call('ZREM', heartbeats, id)
  redis.call('HDEL', requests, id)
  redis.call('HINCRBY', totals, 'depth:' .. r.class_rank, -1)
  redis.call('HINCRBY', totals, 'queued:' .. r.class_rank, -r.tokens)
end

local function hold(id, r, lease_ms)
  pass_time()
  redis.call('ZADD', leases, now + lease_ms, id)
  redis.call('HSET', reservations, id, r.tokens)
  write_record(id, r)
  total.used = total.used + r.tokens
  for _, key in ipairs({ leases, reservations, requests }) do
    redis.call('PEXPIRE', key, KEY_TTL_MS)
  end
end

local function give_back(id, r)
  pass_time()
  redis.call('ZREM', leases, id)
  redis.call('HDEL', reservations, id)
  redis.call('HDEL', requests, id)
  total.used = total.used - r.tokens
  if redis.call('EXISTS', waiting) == 1 then
    total.drained = total.drained + r.tokens
  end
end

-- Give back whatever a request holds, of whichever kind.
local function remove(id, r)
  if is_waiting(id) then
    dequeue(id, r)
  else
    give_back(id, r)
  end
end
