--[[
  Name the keys of one pool. All of them share the hash tag {forebay:v1:<pool>}.

  KEYS[1]  waiting       sorted set  request id by rank; lower is served first
  KEYS[2]  leases        sorted set  request id by lease expiry, ms of the Redis clock
  KEYS[3]  heartbeats    sorted set  request id of a waiter by the ms at which it is given up unless renewed
  KEYS[4]  reservations  hash        request id of a lease -> tokens booked
  KEYS[5]  requests      hash        request id -> record (include/record.lua)
  KEYS[6]  totals        string      running figures that follow from the keys above (include/totals.lua)
  KEYS[7]  capacity      hash        tokens, requests: what may be held; the one permanent key
  KEYS[8]  departed      sorted set  attempt that left before it was heard of, by expiry
  KEYS[9]  replicas      sorted set  replica by the ms until which it counts as alive
]]
local waiting, leases, heartbeats, reservations, requests, totals, capacity, departed, replicas = unpack(KEYS)
