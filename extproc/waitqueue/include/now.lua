--[[
  Read the clock: Redis' own, in whole milliseconds; a test may hand in another as ARGV[1].
]]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
