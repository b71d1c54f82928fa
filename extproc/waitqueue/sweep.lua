--[[
  Take back the leases and drop the waiters that nobody renewed, then grant what fits.

  After a gap in the sweeps the store itself was away, or everybody was cut off from it. Then an expired holding does
  not mean a dead owner: all get one heartbeat to renew before anything is taken back.

  ARGV[1]  now_ms        test clock, or '' for Redis TIME
  ARGV[2]  epoch         the store's epoch as the caller knows it, or ''
  ARGV[3]  lease_ms      lifetime of a lease
  ARGV[4]  heartbeat_ms  lifetime of a waiter; the grace after a gap is as long
  ARGV[5]  max_gap_ms    a longer pause between sweeps is a gap

  Returns {epoch, leases taken back, waiters dropped, granted}.
]]
-- @include keys
-- @include now
-- @include record
-- @include totals
-- @include ledger
-- @include grant
local MAX_REMOVED = 100 -- bounded work a call
local lease_ms, heartbeat_ms, max_gap_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local function remove_expired(key)
  local expired = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, MAX_REMOVED)
  for _, id in ipairs(expired) do
    local r = read_record(id)
    if r then
      remove(id, r)
    else
      redis.call('ZREM', key, id)
    end
  end
  return #expired
end

if total.swept_ms > 0 and now - total.swept_ms > max_gap_ms then
  total.grace_until = now + heartbeat_ms
end
total.swept_ms = now

local taken_back, dropped = 0, 0
if now >= total.grace_until then
  taken_back, dropped = remove_expired(leases), remove_expired(heartbeats)
end
redis.call('ZREMRANGEBYSCORE', departed, '-inf', now)
redis.call('ZREMRANGEBYSCORE', replicas, '-inf', now)
for _, key in ipairs({ waiting, leases, heartbeats, reservations, requests, replicas }) do
  redis.call('PEXPIRE', key, KEY_TTL_MS)
end
held_count = redis.call('ZCARD', leases)
if held_count == 0 then
  total.used = 0 -- keys that expired or were evicted take their share of the totals with them
end
local granted = grant_free(lease_ms)
save_totals()
return { total.epoch, taken_back, dropped, granted }
