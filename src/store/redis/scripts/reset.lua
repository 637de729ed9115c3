-- Resets counters, and tells what they had.
--
-- What is asked: `{is_shared, kind, period, policy, first key, last key}`. KEYS are the counters. The answer: now, and for
-- each counter its state: of a window what was used and of a sliding counter what was used of the window before, of a log the
-- units in force, of a bucket `at, used, parts, since`, of refusals nothing.
local asked = cmsgpack.unpack(ARGV[4])
local kind, period = asked[2], asked[3]
local out, has_any = { now }, false

local function put(value)
    out[#out + 1] = value
end

-- The epoch tells the old counts from the new ones.
local function reset_window(key)
    local row = call('HMGET', key, 'used', 'denied', 'epoch')
    if row[3] then
        call('HSET', key, 'used', 0, 'denied', 0)
        call('HINCRBY', key, 'epoch', 1)
        has_any = true
    end
    return whole(row[1])
end

local function reset_log(key)
    local newest = call('ZRANGE', key, -1, -1)[1]
    local first = call('ZRANGEBYSCORE', key, '(' .. text(now - period), '+inf', 'LIMIT', 0, 1)[1]
    put(first and units_between(event_of(first), event_of(newest)) or 0)
    has_any = call('UNLINK', key) == 1 or has_any
end

local function reset_bucket(key)
    local row = call('HMGET', key, 'at', 'used', 'parts', 'since')
    put(tonumber(row[1]) or now)
    put(whole(row[2]))
    put(whole(row[3]))
    put(tonumber(row[4]) or now)
    if row[1] then
        -- Nothing that was taken up to now goes back to it.
        call('HSET', key, 'at', text(now), 'used', 0, 'parts', 0, 'since', text(now + 1))
        has_any = true
    end
end

for _, key in ipairs(KEYS) do
    if kind == LOG then
        reset_log(key)
    elseif kind == BUCKET then
        reset_bucket(key)
    elseif kind == BLOCK then
        has_any = call('DEL', key) == 1 or has_any
    else
        local start, ends = span_of(kind, period)
        local first = kind == MONTH and month_of(start - 1) or start - period
        local counted = { reset_window(key .. ':' .. text(start)), reset_window(key .. ':' .. text(first)) }
        -- The instant is told from outside, and may be of a moment before.
        reset_window(key .. ':' .. text(ends))
        put(counted[1])
        if kind == PAIR then
            put(counted[2])
        end
    end
end
if has_any and asked[1] == 1 then
    tell(2, asked[4], asked[5], asked[6])
end
return out
