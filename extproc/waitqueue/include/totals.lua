--[[
  Read the running totals once, at the start of a script, and let time pass in them; include/save.lua writes them,
  once, at its end.

  totals  a packed string of what follows from the other keys, kept so that no call need count them:
    epoch          ms at which this life of the store began; one that comes back empty begins another
    used, held     tokens and number of the leases = sum and number of reservations
    queued         number of waiters
    token_ms       integral of used over time
    counted_ms     until when time has passed in these figures
    drained, busy_ms  tokens given back and time passed while somebody waited, both fading with DRAIN_TAU_MS: their
                   ratio is the drain rate, and an idle pool does not dilute it
    arrival        last arrival number given
    frozen_until   no grants before: owners get one heartbeat to say what they hold
    grace_until    nothing is taken back before: the store was away
    swept_ms       last sweep
    backlog        class rank -> { waiters, their tokens }
]]
local KEY_TTL_MS = 3600000
local DRAIN_TAU_MS = 10000
local LOSS_FREEZE_MS = 3000
local FORMAT, SIZE = '>dddddddddddd', 12 * 8 -- the backlog follows where somebody waits

local packed = redis.call('GET', totals)
local epoch, used, held, queued, token_ms, counted_ms, drained, busy_ms, arrival, frozen_until, grace_until, swept_ms =
  struct.unpack(FORMAT, packed or struct.pack(FORMAT, now, 0, 0, 0, 0, now, 0, 0, 0, 0, 0, 0))
local backlog = queued > 0 and cmsgpack.unpack(packed:sub(SIZE + 1)) or {}

local known_epoch = tonumber(ARGV[2])
if known_epoch > 0 and known_epoch ~= epoch then -- the caller knew an earlier life of this store: it was lost
  frozen_until = epoch + LOSS_FREEZE_MS
end

local elapsed_ms = now - counted_ms
if elapsed_ms > 0 then
  token_ms = token_ms + used * elapsed_ms
  if queued > 0 then
    local decay = math.exp(-elapsed_ms / DRAIN_TAU_MS)
    drained = drained * decay
    busy_ms = busy_ms * decay + DRAIN_TAU_MS * (1 - decay)
  end
  counted_ms = now
end
