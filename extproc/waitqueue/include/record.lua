--[[
  Read the record of a request; it is written as cmsgpack.pack(r).

    attempt      the owner's mark: only the attempt that enqueued or adopted the request last may give it back
    replica      whom to tell of a grant
    tokens       reservation
    class_rank, tenant  the flow
    rank         place in the order (include/order.lua)
    enqueued_ms  when the first attempt came
    waited_ms    how long it waited for its grant
]]
local function read_record(id)
  local packed_record = redis.call('HGET', requests, id)
  return packed_record and cmsgpack.unpack(packed_record)
end
