--[[
  Read the pool's figures. Writes nothing, so a loss of the store cannot be noted here and the epoch is not told.

  ARGV[1]  now_ms  test clock, or '' for Redis TIME
  ARGV[2]  epoch   the store's epoch as the caller knows it, or 0

  Returns {0, capacity tokens, capacity requests, used, held, replicas, drain_per_s, held token-seconds,
  and three for each class in which somebody waits: rank, waiters, their tokens}.
]]
-- luacheck: ignore 231 311 (the totals are not saved)
-- @include keys
-- @include now
-- @include totals
-- @include drain
local limits = redis.call('HMGET', capacity, 'tokens', 'requests')
local reply = {
  0, limits[1] or '', limits[2] or '', used, held,
  redis.call('ZCOUNT', replicas, '(' .. now, '+inf'), drain_per_s(), string.format('%.3f', token_ms / 1000),
}
for class_rank, class in pairs(backlog) do
  for _, figure in ipairs({ class_rank, class[1], class[2] }) do
    reply[#reply + 1] = figure
  end
end
return reply
