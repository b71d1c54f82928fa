--[[
  Set what the pool may hold, then grant what fits.

  ARGV[1]  now_ms    test clock, or '' for Redis TIME
  ARGV[2]  epoch     the store's epoch as the caller knows it, or 0
  ARGV[3]  lease_ms  lifetime of a lease
  ARGV[4]  tokens    tokens that may be held, or 'none' where only requests are counted
  ARGV[5]  requests  requests that may be held, or 'none' where only tokens are counted

  Returns {epoch, granted}.
]]
-- @include keys
-- @include now
-- @include totals
-- @include record
-- @include dequeue
-- @include hold
-- @include room
-- @include grant
redis.call('HSET', capacity, 'tokens', ARGV[4], 'requests', ARGV[5])
local granted = grant_free(tonumber(ARGV[3]))
-- @include save
return { epoch, granted }
