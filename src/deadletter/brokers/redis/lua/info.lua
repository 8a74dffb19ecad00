-- ARGV: now
-- Answers ready, delayed, claimed, suspects, the packed head of the line, the counts.
local due = call('ZCOUNT', ready, '-inf', text(now))
local head = call('ZRANGE', ready, 0, 0)
return {
  due, call('ZCARD', ready) - due, call('ZCARD', claimed), call('ZCARD', suspects),
  head[1] and call('HGET', bodies, head[1]) or '', call('HGETALL', meta),
}
