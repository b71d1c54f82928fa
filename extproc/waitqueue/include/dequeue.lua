--[[
  Take a request out of the queue.
]]
local function count_waiter(r, change)
  local class = backlog[r.class_rank] or { 0, 0 }
  class[1], class[2] = class[1] + change, class[2] + change * r.tokens
  backlog[r.class_rank] = class[1] > 0 and class or nil
  queued = queued + change
end

local function dequeue(id, r)
  redis.call('ZREM', waiting, id)
  redis.call('ZREM', heartbeats, id)
  count_waiter(r, -1)
end
