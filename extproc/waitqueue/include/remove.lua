--[[
  Give back whatever a request holds, a lease or a place in the queue. Needs: dequeue.
]]
local function remove(id, r)
  if redis.call('ZREM', leases, id) == 1 then
    redis.call('HDEL', reservations, id)
    used, held = used - r.tokens, held - 1
    drained = drained + (queued > 0 and r.tokens or 0)
  else
    dequeue(id, r)
  end
  redis.call('HDEL', requests, id)
end
