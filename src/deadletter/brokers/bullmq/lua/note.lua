-- ARGV: now, then for each: id, token, 'progress' or 'log', its JSON or line
for i = 2, #ARGV, 4 do
  local id, kind, value = ARGV[i], ARGV[i + 2], ARGV[i + 3]
  if holds(id, ARGV[i + 1]) and kind == 'progress' then
    call('HSET', base .. id, 'progress', value)
    tell('progress', id, 'data', value)
  elseif holds(id, ARGV[i + 1]) then
    local readable, told = pcall(cjson.decode, call('HGET', base .. id, 'opts') or '{}')
    call('RPUSH', base .. id .. ':logs', value)
    local kept = readable and type(told) == 'table' and whole(told.kl or told.keepLogs)
    if kept and kept > 0 then call('LTRIM', base .. id .. ':logs', -kept, -1) end
  end
end
return 1
