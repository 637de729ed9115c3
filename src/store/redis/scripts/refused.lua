-- Counts units that were refused without asking, where their window is still counted.
--
-- What is asked: one list of `place of the key, start, epoch, units`.
local asked = cmsgpack.unpack(ARGV[4])
for at = 1, #asked, 4 do
    local key = KEYS[asked[at]] .. ':' .. text(asked[at + 1])
    local row = call('HMGET', key, 'denied', 'epoch')
    if tonumber(row[2]) == asked[at + 2] then
        call('HSET', key, 'denied', text(min(whole(row[1]) + asked[at + 3], MOST)))
    end
end
return 0
