--[[
  Write the running totals; see include/totals.lua.
]]
local figures = struct.pack(FORMAT, epoch, used, held, queued, token_ms, counted_ms, drained, busy_ms, arrival,
  frozen_until, grace_until, swept_ms)
redis.call('SET', totals, queued > 0 and figures .. cmsgpack.pack(backlog) or figures, 'PX', KEY_TTL_MS)
