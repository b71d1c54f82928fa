--[[
  Book a request's tokens if there is room and nobody of its order is before it, else queue it, or refuse.

  A request that is known already was brought again by Envoy's retry: the new attempt takes over its place or lease.

  ARGV[1]   now_ms        test clock, or '' for Redis TIME
  ARGV[2]   epoch         the store's epoch as the caller knows it, or ''
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

  Returns {epoch, status, waited_ms, rank, enqueued_ms, ahead_tokens, drain_per_s}.
  Invariant: the sum of reservations exceeds the capacity only while a single lease is held or the capacity was cut.
]]
-- @include keys
-- @include now
-- @include record
-- @include totals
-- @include ledger
-- @include grant
local GRANTED, QUEUED, NEVER_FITS, QUEUE_FULL, NOT_QUEUED, LEFT = 1, 2, 3, 4, 5, 6
local id, attempt, replica, tokens = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local class_rank, tenant = tonumber(ARGV[7]), ARGV[8]
local max_requests, may_wait = tonumber(ARGV[9]), ARGV[10] == '1'
local lease_ms, heartbeat_ms = tonumber(ARGV[11]), tonumber(ARGV[12])

-- Tokens that must be given back before this request could go on: what is before it, and what room lacks.
local function ahead_tokens()
  local ahead = tokens + total.used - capacity_tokens
  local figures = redis.call('HGETALL', totals)
  for i = 1, #figures, 2 do
    local rank = tonumber(figures[i]:match('^queued:(%d+)$') or '')
    if rank and rank <= class_rank then
      ahead = ahead + figures[i + 1]
    end
  end
  return math.max(0, ahead)
end

local function answer(status, r)
  local ahead = (status == QUEUE_FULL or status == NOT_QUEUED) and ahead_tokens() or 0
  save_totals()
  r = r or { waited_ms = 0, rank = 0, enqueued_ms = 0 }
  return { total.epoch, status, r.waited_ms, r.rank, r.enqueued_ms, ahead, drain_per_s() }
end

local function adopt(r)
  r.attempt, r.replica = attempt, replica
  write_record(id, r)
  if is_waiting(id) then
    redis.call('ZADD', heartbeats, now + heartbeat_ms, id)
    r.waited_ms = math.max(0, now - r.enqueued_ms)
    return answer(QUEUED, r)
  end
  redis.call('ZADD', leases, now + lease_ms, id)
  return answer(GRANTED, r)
end

if redis.call('ZSCORE', departed, attempt) then
  return answer(LEFT)
end
local known = read_record(id)
if known then
  return adopt(known)
end
if tokens > capacity_tokens then
  return answer(NEVER_FITS)
end

local r = {
  attempt = attempt, replica = replica, tokens = tokens, class_rank = class_rank, tenant = tenant,
  rank = next_rank(class_rank), enqueued_ms = now, waited_ms = 0,
}
local head = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
if (not head[2] or r.rank < tonumber(head[2])) and fits(tokens) then
  hold(id, r, lease_ms)
  return answer(GRANTED, r)
end
if not may_wait then
  return answer(NOT_QUEUED)
end
if redis.call('ZCARD', waiting) >= max_requests then
  return answer(QUEUE_FULL)
end
queue(id, r, heartbeat_ms)
return answer(QUEUED, r)
