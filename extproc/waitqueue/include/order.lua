--[[
  Give a request that arrives now its place: class first, arrival last; see extproc/domain/rank.py.

  Arrivals follow the clock, so that a store that lost its memory does not put newcomers before those who wait already.
]]
local CLASS_SPAN = 4398046511104 -- 2^42

local function next_rank(class_rank)
  arrival = math.max(now, arrival + 1)
  return class_rank * CLASS_SPAN + arrival
end
