--[[
  Book a request's tokens. Only this and include/remove.lua write `leases` and `reservations`.
]]
local function hold(id, r, lease_ms)
  redis.call('ZADD', leases, now + lease_ms, id)
  redis.call('HSET', reservations, id, r.tokens)
  redis.call('HSET', requests, id, cmsgpack.pack(r))
  if held == 0 then -- the keys come into being
    for _, key in ipairs({ leases, reservations, requests }) do
      redis.call('PEXPIRE', key, KEY_TTL_MS)
    end
  end
  used, held = used + r.tokens, held + 1
end
