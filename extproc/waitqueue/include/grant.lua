--[[
  Grant waiters while there is room, first in the order first, and announce each to its owner's replica only.

  The head is never overtaken: room gathers until it fits, so a large request cannot starve. A head larger than the
  whole capacity (it was cut after the request queued) goes alone, or it would block the queue for ever.
]]
local MAX_GRANTS = 64 -- bounded work a call; the next call goes on

local room = redis.call('HMGET', capacity, 'tokens', 'requests')
local capacity_is_known = room[1] and true
local capacity_tokens = tonumber(room[1] or '') or math.huge -- 'none' is no limit
local capacity_requests = tonumber(room[2] or '') or math.huge
local held_count = redis.call('ZCARD', leases)

local function fits(tokens)
  if not capacity_is_known or now < total.frozen_until then
    return false
  end
  return held_count == 0
    or (held_count < capacity_requests and total.used + tokens <= capacity_tokens)
end

local function grant_free(lease_ms)
  local granted = 0
  while granted < MAX_GRANTS do
    local id = redis.call('ZRANGE', waiting, 0, 0)[1]
    local r = id and read_record(id)
    if not r or not fits(r.tokens) then
      break
    end
    dequeue(id, r)
    r.waited_ms = math.max(0, now - r.enqueued_ms)
    hold(id, r, lease_ms)
    held_count = held_count + 1
    granted = granted + 1
    redis.call('PUBLISH', waiting .. ':' .. r.replica, id .. ' ' .. r.attempt .. ' ' .. r.waited_ms)
  end
  return granted
end
