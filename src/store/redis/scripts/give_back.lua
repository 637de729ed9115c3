-- Takes units back where they were taken from, as far as they are still there.
--
-- What is asked: `{is_shared, page, backs}`, backs being `{place of the key, kind, policy, key, units, ...}` and behind that for a
-- window `start, epoch, next start or nothing`, for a log `at, is of later events alone`, for a bucket `at, rate, period`, for
-- refusals `since`. The answer: for each of them what is left to be done: `units, after which instant`, or two zeros; and then
-- which of them others must be told of, when that is not done here.
local asked = cmsgpack.unpack(ARGV[4])
local tells, page, backs = asked[1] == 1, asked[2], asked[3]
local out, freed, told = {}, {}, {}

local function free(number, back)
    if not tells then
        freed[#freed + 1] = number
    elseif not told[back[3] .. '\n' .. back[4]] then
        told[back[3] .. '\n' .. back[4]] = true
        tell(0, back[3], back[4], back[4])
    end
end

local function to_window(number, back)
    local name = KEYS[back[1]] .. ':'
    local key = name .. text(back[6])
    local row = call('HMGET', key, 'used', 'denied', 'epoch')
    if tonumber(row[3]) ~= back[7] then
        return
    end
    call('HSET', key, 'used', text(max(0, whole(row[1]) - back[5])))
    -- Others must know when they have been refused since: of a sliding counter also in the window after it.
    local later = back[8] and call('HGET', name .. text(back[8]), 'denied')
    if whole(row[2]) > 0 or whole(later) > 0 then
        free(number, back)
    end
end

-- Out of an event, and out of the totals of all later ones: a page of them at a time, from the oldest on, so that more is told as
-- used than is until then, and never less.
local function to_log(number, back)
    local key, units, at = KEYS[back[1]], back[5], back[6]
    if back[7] == 0 then
        local own = call('ZRANGEBYSCORE', key, text(at), text(at))[1]
        if not own then
            return
        end
        own = event_of(own)
        units = min(units, own.units)
        if units == 0 then
            return
        end
        if own.units > units then
            local total = own.total - units
            put_event(key, at, own.units - units, total < 0 and total + TOTALS or total)
        end
        call('ZREM', key, own.member)
    end
    local later = call('ZRANGEBYSCORE', key, '(' .. text(at), '+inf', 'LIMIT', 0, page)
    local last = at
    for _, member in ipairs(later) do
        local event = event_of(member)
        local total = event.total - units
        put_event(key, event.at, event.units, total < 0 and total + TOTALS or total)
        call('ZREM', key, member)
        last = event.at
    end
    page = page - #later
    if page <= 0 and call('ZCOUNT', key, '(' .. text(last), '+inf') > 0 then
        out[#out + 1], out[#out + 2] = units, last
    end
    free(number, back)
end

local function to_bucket(number, back)
    local key, units, taken_at, rate, period = KEYS[back[1]], back[5], back[6], back[7], back[8]
    local row = call('HMGET', key, 'at', 'used', 'parts', 'since')
    if not row[1] then
        return
    end
    local at, is_moved = place(tonumber(row[1]))
    -- After a step back of the clock it is not known what has drained since.
    if is_moved or taken_at > at or taken_at < tonumber(row[4]) then
        return
    end
    local gone, more_gone = muldiv(at - taken_at, rate, period)
    local there, more_there = without(units, 0, gone, more_gone, period)
    local used, parts = without(whole(row[2]), whole(row[3]), there, more_there, period)
    call('HSET', key, 'used', text(used), 'parts', text(parts))
    free(number, back)
end

local function to_refusals(number, back)
    local at = call('HGET', KEYS[back[1]], 'at')
    if at and tonumber(at) >= back[6] then
        call('DEL', KEYS[back[1]])
        free(number, back)
    end
end

for number, back in ipairs(backs) do
    local before = #out
    if back[2] == LOG and page <= 0 then
        -- It is the next call's, as it is.
        out[#out + 1], out[#out + 2] = -1, 0
    elseif back[2] == LOG then
        to_log(number, back)
    elseif back[2] == BUCKET then
        to_bucket(number, back)
    elseif back[2] == BLOCK then
        to_refusals(number, back)
    else
        to_window(number, back)
    end
    if #out == before then
        out[#out + 1], out[#out + 2] = 0, 0
    end
end
for _, number in ipairs(freed) do
    out[#out + 1] = number
end
return out
