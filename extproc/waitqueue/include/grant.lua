--[[
  Grant waiters while there is room, first in the order first, and announce each to its owner's replica only.

  The head is never overtaken: room gathers until it fits, so a large request cannot starve.
  An announcement is "<waited_ms> <attempt> <request id>": attempts have no spaces, ids may. Needs: dequeue, hold, room.
]]
local MAX_GRANTS = 64 -- bounded work a call; the next call goes on

local function grant_free(lease_ms)
  local granted, limit = 0, read_capacity()
  while granted < MAX_GRANTS and fits(1, limit) do
    local id = redis.call('ZRANGE', waiting, 0, 0)[1]
    local r = id and read_record(id)
    if not r or not fits(r.tokens, limit) then
      break
    end
    dequeue(id, r)
    r.waited_ms = math.max(0, now - r.enqueued_ms)
    hold(id, r, lease_ms)
    granted = granted + 1
    redis.call('PUBLISH', waiting .. ':' .. r.replica, r.waited_ms .. ' ' .. r.attempt .. ' ' .. id)
  end
  return granted
end
