-- ARGV: now, token, lease, microseconds since it was asked for
-- Gives back what a claim got that nobody ever saw, as if it had not been made.
local token, lease = ARGV[2], tonumber(ARGV[3])
local ours = {}
for _, id in ipairs(call('ZRANGEBYSCORE', claimed, text(now + lease - ARGV[4]), text(now + lease))) do
  if call('GET', base .. id .. ':lock') == token then ours[#ours + 1] = id end
end
-- The latest first, so that the first one ends in front.
table.sort(ours, function(a, b) return (tonumber(a) or 0) > (tonumber(b) or 0) end)
for _, id in ipairs(ours) do
  local job = let_go(id) and read(id)
  if job then
    job.ats = text(count_on(id, 'ats', -1))
    if job.ats == '0' then call('HDEL', base .. id, 'processedOn', 'dlq:first') end
    call('HDEL', base .. id, 'dlq:token')
    if job.expires then call('ZADD', expiry, job.expires, id) end
    if job.held == ALONE then suspected(id, job, ms) end
    if tonumber(job.priority or 0) > 0 and job.held ~= ALONE then
      line_up(id, job.priority)
    else
      call('RPUSH', line, id)
    end
    tell('waiting', id, 'prev', 'active')
  end
end
if #ours > 0 then wake() end
return #ours
