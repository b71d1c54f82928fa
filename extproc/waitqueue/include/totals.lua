--[[
  Read the running totals once, at the start of a script; change them in `total`; write them once, at its end.

  totals  epoch          names this life of the store; one that comes back empty gets another
          used           tokens held = sum of reservations
          token_ms       integral of used over time
          counted_ms     when token_ms was last brought up to date
          drained, busy_ms  tokens given back and time passed while somebody waited, both decaying: their ratio is
                         the drain rate, and an idle pool does not dilute it
          arrival        last arrival number given
          frozen_until   no grants before: owners get one heartbeat to say what they hold
          grace_until    nothing is taken back before: the store was away
          swept_ms       last sweep
          depth:<c>, queued:<c>  waiters and their tokens in the class of rank c (include/ledger.lua)
]]
local KEY_TTL_MS = 3600000
local DRAIN_TAU_MS = 10000
local LOSS_FREEZE_MS = 3000
local FIELDS = { 'used', 'token_ms', 'counted_ms', 'drained', 'busy_ms', 'arrival', 'frozen_until', 'grace_until',
  'swept_ms' }

local total = { epoch = redis.call('HGET', totals, 'epoch') }
for i, value in ipairs(redis.call('HMGET', totals, unpack(FIELDS))) do
  total[FIELDS[i]] = tonumber(value or '') or 0
end
if not total.epoch then
  total.epoch = string.format('%.0f', now)
  total.counted_ms = now
  if ARGV[2] ~= '' then -- the caller knew an earlier life of this store: it was lost
    total.frozen_until = now + LOSS_FREEZE_MS
  end
end

local function save_totals()
  local pairs_to_set = { 'epoch', total.epoch }
  for _, name in ipairs(FIELDS) do
    pairs_to_set[#pairs_to_set + 1] = name
    pairs_to_set[#pairs_to_set + 1] = total[name]
  end
  redis.call('HSET', totals, unpack(pairs_to_set))
  redis.call('PEXPIRE', totals, KEY_TTL_MS)
end

local function pass_time()
  local elapsed = math.max(0, now - total.counted_ms)
  if elapsed > 0 then
    total.token_ms = total.token_ms + total.used * elapsed
    if redis.call('EXISTS', waiting) == 1 then
      local decay = math.exp(-elapsed / DRAIN_TAU_MS)
      total.drained = total.drained * decay
      total.busy_ms = total.busy_ms * decay + elapsed
    end
    total.counted_ms = now
  end
end

local function drain_per_s()
  if total.busy_ms < 500 or total.drained <= 0 then
    return ''
  end
  return string.format('%.3f', total.drained * 1000 / total.busy_ms)
end
