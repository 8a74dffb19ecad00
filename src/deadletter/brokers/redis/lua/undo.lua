-- ARGV: now, token, lease, microseconds since it was asked for
-- Gives back what a claim got that nobody ever saw, as if it had not been made.
local token, lease = ARGV[2], tonumber(ARGV[3])
local from, to = text(now + lease - ARGV[4]), text(now + lease)
local near, given_back = call('ZRANGEBYSCORE', claimed, from, to), 0
for start = 1, #near, SLICE do
  local slice = {unpack(near, start, math.min(start + SLICE - 1, #near))}
  for i, state in ipairs(call('HMGET', states, unpack(slice))) do
    if holds(state, token) then
      local row = read(state)
      row.token, row.attempts, row.alone = NONE, row.attempts - 1, false
      if row.attempts == 0 then row.first = NONE end
      line_up(slice[i], row)
      given_back = given_back + 1
    end
  end
  lined_up()
end
return given_back
