--[[
  Tell whether a reservation has room: used + mine <= capacity, in tokens and in requests.

  One that is larger than the whole capacity (it was cut after the request queued) goes alone, or it would block the
  queue for ever. While the capacity is unknown, or owners have yet to say what they hold, nothing has room.
]]
local function read_capacity()
  local limits = redis.call('HMGET', capacity, 'tokens', 'requests')
  return {
    is_known = limits[1] and true,
    tokens = tonumber(limits[1] or '') or math.huge, -- 'none' is no limit
    requests = tonumber(limits[2] or '') or math.huge,
  }
end

local function fits(tokens, limit)
  if not limit.is_known or now < frozen_until then
    return false
  end
  return held == 0 or (held < limit.requests and used + tokens <= limit.tokens)
end
