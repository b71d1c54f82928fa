--[[
  Read and write the record of a request, a packed array.

  The attempt is the owner's mark: only the attempt that enqueued or adopted the request last may give it back.
]]
local function read_record(id)
  local packed = redis.call('HGET', requests, id)
  if not packed then
    return nil
  end
  local f = cmsgpack.unpack(packed)
  return {
    attempt = f[1], replica = f[2], tokens = f[3], class_rank = f[4],
    tenant = f[5], rank = f[6], enqueued_ms = f[7], waited_ms = f[8],
  }
end

local function write_record(id, r)
  redis.call('HSET', requests, id, cmsgpack.pack({
    r.attempt, r.replica, r.tokens, r.class_rank, r.tenant, r.rank, r.enqueued_ms, r.waited_ms,
  }))
end
