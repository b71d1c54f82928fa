--[[
  Give back whatever the given attempts hold, then grant what fits.

  An attempt that holds nothing may still be on its way here (its caller was cancelled while it enqueued): it is
  remembered for a while, so that it finds it has left.

  ARGV[1]  now_ms     test clock, or '' for Redis TIME
  ARGV[2]  epoch      the store's epoch as the caller knows it, or 0
  ARGV[3]  lease_ms   lifetime of a lease
  ARGV[4...]          pairs of request id and attempt

  Returns {epoch, granted}.
]]
-- @include keys
-- @include now
-- @include totals
-- @include record
-- @include dequeue
-- @include remove
local DEPARTED_MS = 60000

for i = 4, #ARGV, 2 do
  local id, attempt = ARGV[i], ARGV[i + 1]
  local r = read_record(id)
  if r and r.attempt == attempt then
    remove(id, r)
  else
    redis.call('ZADD', departed, now + DEPARTED_MS, attempt)
    redis.call('PEXPIRE', departed, DEPARTED_MS)
  end
end

local granted = 0
if queued > 0 then
  -- luacheck: ignore 431
  -- @include room
  -- @include hold
  -- @include grant
  granted = grant_free(tonumber(ARGV[3]))
end
-- @include save
return { epoch, granted }
