--[[
  Tell at what rate tokens come back, per second; '' while too little time was spent waiting to tell.
]]
local function drain_per_s()
  if busy_ms < 500 or drained <= 0 then
    return ''
  end
  return string.format('%.3f', drained * 1000 / busy_ms)
end
