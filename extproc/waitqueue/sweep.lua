--[[
  Take back the leases and drop the waiters that nobody renewed, then grant what fits.

  After a gap in the sweeps the store itself was away, or everybody was cut off from it. Then an expired holding does
  not mean a dead owner: all get one heartbeat to renew before anything is taken back.

  Keys that no longer add up were evicted or deleted by hand. The rest is dropped with them, which begins another life
  of the store: owners say again what they hold.

  ARGV[1]  now_ms        test clock, or '' for Redis TIME
  ARGV[2]  epoch         the store's epoch as the caller knows it, or 0
  ARGV[3]  lease_ms      lifetime of a lease
  ARGV[4]  heartbeat_ms  lifetime of a waiter; the grace after a gap is as long
  ARGV[5]  max_gap_ms    a longer pause between sweeps is a gap

  Returns {epoch, leases taken back, waiters dropped, granted}.
]]
-- @include keys
-- @include now
-- @include totals
-- @include record
-- @include dequeue
-- @include hold
-- @include remove
-- @include room
-- @include grant
local MAX_REMOVED = 100 -- bounded work a call; the next call goes on
local lease_ms, heartbeat_ms, max_gap_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local function adds_up()
  return redis.call('ZCARD', leases) == held
    and redis.call('HLEN', reservations) == held
    and redis.call('ZCARD', waiting) == queued
    and redis.call('ZCARD', heartbeats) == queued
    and redis.call('HLEN', requests) == held + queued
end

local function remove_expired(key)
  local expired = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, MAX_REMOVED)
  for _, id in ipairs(expired) do
    remove(id, read_record(id))
  end
  return #expired
end

if not adds_up() then
  redis.call('DEL', waiting, leases, heartbeats, reservations, requests, totals)
  return { epoch, 0, 0, 0 }
end
if swept_ms > 0 and now - swept_ms > max_gap_ms then
  grace_until = now + heartbeat_ms
end
swept_ms = now

local taken_back, dropped = 0, 0
if now >= grace_until then
  taken_back, dropped = remove_expired(leases), remove_expired(heartbeats)
end
redis.call('ZREMRANGEBYSCORE', departed, '-inf', now)
redis.call('ZREMRANGEBYSCORE', replicas, '-inf', now)
for _, key in ipairs({ waiting, leases, heartbeats, reservations, requests, replicas }) do
  redis.call('PEXPIRE', key, KEY_TTL_MS)
end
local granted = grant_free(lease_ms)
-- @include save
return { epoch, taken_back, dropped, granted }
