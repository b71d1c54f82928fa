--[[
  Read the pool's figures. Writes nothing.

  ARGV[1]  now_ms  test clock, or '' for Redis TIME
  ARGV[2]  epoch   the store's epoch as the caller knows it, or ''
  ARGV[3...]       class ranks to report the backlog of

  Returns {epoch, capacity known, capacity tokens, capacity requests, used, leases, replicas, drain_per_s,
  held token-seconds, and for each class rank: waiters, their tokens}.
]]
-- @include keys
-- @include now
-- @include totals
local room = redis.call('HMGET', capacity, 'tokens', 'requests')
pass_time()
local reply = {
  total.epoch, redis.call('EXISTS', capacity), room[1] or 'none', room[2] or 'none', total.used,
  redis.call('ZCARD', leases), redis.call('ZCOUNT', replicas, now, '+inf'), drain_per_s(),
  string.format('%.3f', total.token_ms / 1000),
}
for i = 3, #ARGV do
  for _, name in ipairs({ 'depth:', 'queued:' }) do
    reply[#reply + 1] = tonumber(redis.call('HGET', totals, name .. ARGV[i]) or '') or 0
  end
end
return reply
