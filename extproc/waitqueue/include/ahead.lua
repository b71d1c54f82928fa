--[[
  Tell a refused request what is before it: the tokens that must be given back before it could go on.

  Where requests are scarcer than tokens, those that must leave are counted at the mean of the tokens held.
]]
local function ahead_tokens(r, limit)
  local requests_ahead, tokens_ahead = 1, r.tokens
  for class_rank, class in pairs(backlog) do
    if class_rank <= r.class_rank then
      requests_ahead, tokens_ahead = requests_ahead + class[1], tokens_ahead + class[2]
    end
  end
  local lacking_requests = requests_ahead + held - limit.requests
  return math.max(
    0,
    tokens_ahead + used - limit.tokens,
    math.ceil(lacking_requests * used / math.max(1, held))
  )
end
