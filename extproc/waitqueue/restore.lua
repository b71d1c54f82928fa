--[[
  Put back holdings that the store has forgotten: waiters at their old rank, leases even beyond the capacity, since
  what an owner says it holds is held.

  ARGV[1]  now_ms        test clock, or '' for Redis TIME
  ARGV[2]  epoch         the store's epoch as the caller knows it, or 0
  ARGV[3]  replica       who holds them
  ARGV[4]  lease_ms      lifetime of a lease
  ARGV[5]  heartbeat_ms  lifetime of a waiter
  ARGV[6...]             eight for each holding: id, attempt, tokens, class_rank, tenant, rank, enqueued_ms,
                         and 1 for a lease or 0 for a waiter

  Returns {epoch}.
]]
-- @include keys
-- @include now
-- @include totals
-- @include record
-- @include order
-- @include dequeue
-- @include queue
-- @include hold
local replica, lease_ms, heartbeat_ms = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

for i = 6, #ARGV, 8 do
  local id, attempt = ARGV[i], ARGV[i + 1]
  if not redis.call('ZSCORE', departed, attempt) and redis.call('HEXISTS', requests, id) == 0 then
    local r = {
      attempt = attempt, replica = replica, tokens = tonumber(ARGV[i + 2]), class_rank = tonumber(ARGV[i + 3]),
      tenant = ARGV[i + 4], rank = tonumber(ARGV[i + 5]), enqueued_ms = tonumber(ARGV[i + 6]), waited_ms = 0,
    }
    if r.enqueued_ms == 0 then -- it never heard from the store where it stands: at the end, from now on
      r.rank, r.enqueued_ms = next_rank(r.class_rank), now
    end
    if ARGV[i + 7] == '1' then
      hold(id, r, lease_ms)
    else
      queue(id, r, heartbeat_ms)
    end
  end
end
-- @include save
return { epoch }
