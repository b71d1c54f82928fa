--[[
  Book a request's tokens if there is room and nobody of its order is before it, else queue it, or refuse.

  A request that is known already was brought again by Envoy's retry: the new attempt takes over its place or lease.

  ARGV[1]   now_ms        test clock, or '' for Redis TIME
  ARGV[2]   epoch         the store's epoch as the caller knows it, or 0
  ARGV[3]   id            request
  ARGV[4]   attempt       who asks
  ARGV[5]   replica       whom to tell of a grant
  ARGV[6]   tokens        reservation
  ARGV[7]   class_rank    rank of the priority class
  ARGV[8]   tenant        who shares fairly
  ARGV[9]   max_requests  waiters the queue takes
  ARGV[10]  may_wait      1, or 0 to refuse rather than queue
  ARGV[11]  lease_ms      lifetime of a lease
  ARGV[12]  heartbeat_ms  lifetime of a waiter

  Returns {epoch, status, waited_ms, rank, enqueued_ms}, or {epoch, status, ahead_tokens, drain_per_s} for a refusal.
  Invariant: what is held exceeds the capacity only as a single lease, after a cut, or after a restore.
]]
-- @include keys
-- @include now
-- @include totals
-- @include record
-- @include order
-- @include room
-- @include hold
local GRANTED, QUEUED, NEVER_FITS, QUEUE_FULL, NOT_QUEUED, LEFT = 1, 2, 3, 4, 5, 6
local id, attempt, replica, lease_ms, heartbeat_ms = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[11]), tonumber(ARGV[12])

local function answer(status, ...)
  -- @include save
  return { epoch, status, ... }
end

if redis.call('ZSCORE', departed, attempt) then
  return answer(LEFT, 0, '')
end

local known = read_record(id)
if known then
  known.attempt, known.replica = attempt, replica
  redis.call('HSET', requests, id, cmsgpack.pack(known))
  if redis.call('ZSCORE', leases, id) then
    redis.call('ZADD', leases, now + lease_ms, id)
    return answer(GRANTED, known.waited_ms, known.rank, known.enqueued_ms)
  end
  redis.call('ZADD', heartbeats, now + heartbeat_ms, id)
  return answer(QUEUED, math.max(0, now - known.enqueued_ms), known.rank, known.enqueued_ms)
end

local limit = read_capacity()
local tokens, class_rank = tonumber(ARGV[6]), tonumber(ARGV[7])
if tokens > limit.tokens then
  return answer(NEVER_FITS, 0, '')
end
local r = {
  attempt = attempt, replica = replica, tokens = tokens, class_rank = class_rank, tenant = ARGV[8],
  rank = next_rank(class_rank), enqueued_ms = now, waited_ms = 0,
}
local head_rank = queued > 0 and tonumber(redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2])
if (not head_rank or r.rank < head_rank) and fits(tokens, limit) then
  hold(id, r, lease_ms)
  return answer(GRANTED, 0, r.rank, now)
end

-- luacheck: ignore 431 (parameters of the includes are named as the locals here)
-- @include dequeue
-- @include queue
-- @include ahead
-- @include drain
if ARGV[10] == '0' then
  return answer(NOT_QUEUED, ahead_tokens(r, limit), drain_per_s())
elseif queued >= tonumber(ARGV[9]) then
  return answer(QUEUE_FULL, ahead_tokens(r, limit), drain_per_s())
end
queue(id, r, heartbeat_ms)
return answer(QUEUED, 0, r.rank, now)
