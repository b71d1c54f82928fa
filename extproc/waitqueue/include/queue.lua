--[[
  Put a request into the queue. Only this and include/dequeue.lua write `waiting` and `heartbeats`. Needs: dequeue.
]]
local function queue(id, r, heartbeat_ms)
  redis.call('ZADD', waiting, r.rank, id)
  redis.call('ZADD', heartbeats, now + heartbeat_ms, id)
  redis.call('HSET', requests, id, cmsgpack.pack(r))
  if queued == 0 then -- the keys come into being
    for _, key in ipairs({ waiting, heartbeats, requests }) do
      redis.call('PEXPIRE', key, KEY_TTL_MS)
    end
  end
  count_waiter(r, 1)
end
