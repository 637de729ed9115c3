-- What all scripts begin with: the time, whole numbers, and what others are told.
--
-- Numbers are doubles here: whole ones are exact up to 2^53, and nothing below leaves that range. A text is made of them by
-- `text` alone, since `..` writes 14 digits. KEYS are the names of counters, without the start of their windows; a cluster looks at
-- KEYS as names of what is there, so for one they are a fifth argument.
-- ARGV: the prefix, the instant that a test has set or nothing, milliseconds that are added to the server's time, what
-- is asked.
local call, fmod, floor, ceil, min, max = redis.call, math.fmod, math.floor, math.ceil, math.min, math.max
local MOST = 9007199254740991
-- The limit of who has none, and the most that any limit is.
local MOST_UNITS = 4294967295
-- Instants are kept within these ends of time.
local LAST = 4503599627370496
local LONGEST_WAY = 10000
local LONGEST_TTL = 1000000000000

local prefix = ARGV[1]
local KEYS = ARGV[5] and cmsgpack.unpack(ARGV[5]) or KEYS
local time = call('TIME')
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local servers_now = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000) + tonumber(ARGV[3])
local now = tonumber(ARGV[2]) or servers_now

local function text(number)
    return string.format('%.0f', number)
end

local function whole(value)
    return tonumber(value or 0)
end

-- `left * right / by`, rounded down, and what remains. `by` is below 2^40.
local function muldiv(left, right, by)
    if left * right <= MOST then
        local rest = fmod(left * right, by)
        return (left * right - rest) / by, rest
    end
    local part = fmod(left, by)
    local times = (left - part) / by
    if times * right > MOST then
        return MOST, 0
    end
    -- A byte of `right` at a time, from the highest on.
    local quotient, rest = 0, 0
    for shift = 6, 0, -1 do
        local byte = fmod(floor(right / 256 ^ shift), 256)
        local sum = rest * 256 + part * byte
        rest = fmod(sum, by)
        quotient = quotient * 256 + (sum - rest) / by
    end
    return min(times * right + quotient, MOST), rest
end

-- Whether `left * by_left <= right * by_right`, the factors being at least 1: `left / by_right` and `right / by_left` are
-- compared as continued fractions.
local function is_no_more(left, by_left, right, by_right)
    if left * by_left <= MOST and right * by_right <= MOST then
        return left * by_left <= right * by_right
    end
    while true do
        local left_rest, right_rest = fmod(left, by_right), fmod(right, by_left)
        local left_whole, right_whole = (left - left_rest) / by_right, (right - right_rest) / by_left
        if left_whole ~= right_whole then
            return left_whole < right_whole
        elseif left_rest == 0 then
            return true
        elseif right_rest == 0 then
            return false
        end
        left, by_left, right, by_right = by_left, left_rest, by_right, right_rest
    end
end

-- Where a decision stands, and whether what is stored lies so far ahead that the clock must have stepped back.
local function place(stored)
    if stored > now + 1000 then
        return now, true
    end
    return max(now, stored), false
end

local function day_of(year, month)
    if month <= 2 then
        year = year - 1
    end
    local era = floor(year / 400)
    local of_era = year - era * 400
    local of_year = floor((153 * (month > 2 and month - 3 or month + 9) + 2) / 5)
    return era * 146097 + of_era * 365 + floor(of_era / 4) - floor(of_era / 100) + of_year - 719468
end

local DAY = 86400000
local FIRST_MONTH, LAST_MONTH = day_of(-9999, 1) * DAY, day_of(9999, 12) * DAY

-- The month of the UTC calendar that holds an instant.
local function month_of(at)
    if at < FIRST_MONTH then
        return -LAST, FIRST_MONTH
    elseif at >= LAST_MONTH then
        return LAST_MONTH, LAST
    end
    local day = floor(at / DAY) + 719468
    local era = floor(day / 146097)
    local of_era = day - era * 146097
    local year_of_era = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
    local of_year = of_era - (365 * year_of_era + floor(year_of_era / 4) - floor(year_of_era / 100))
    local from_march = floor((5 * of_year + 2) / 153)
    local month = from_march < 10 and from_march + 3 or from_march - 9
    local year = year_of_era + era * 400 + (month <= 2 and 1 or 0)
    if month == 12 then
        return day_of(year, 12) * DAY, day_of(year + 1, 1) * DAY
    end
    return day_of(year, month) * DAY, day_of(year, month + 1) * DAY
end

local WINDOW, MONTH, PAIR, LOG, BUCKET, BLOCK = 0, 1, 2, 3, 4, 5

-- The window that holds now.
local function span_of(kind, period)
    if kind == MONTH then
        return month_of(now)
    end
    local gone = fmod(now, period)
    if gone < 0 then
        gone = gone + period
    end
    return now - gone, now - gone + period
end

-- Running totals begin anew after so many units, and only differences count.
local TOTALS = LAST

local function event_of(member)
    local at, units, total = string.match(member, '^(-?%d+):(%d+):(%d+)$')
    return { at = tonumber(at), units = tonumber(units), total = tonumber(total), member = member }
end

local function put_event(key, at, units, total)
    call('ZADD', key, text(at), text(at) .. ':' .. text(units) .. ':' .. text(total))
end

local function units_between(first, newest)
    local between = newest.total - first.total
    return (between < 0 and between + TOTALS or between) + first.units
end

-- What was used of a bucket, without so many units and parts of one.
local function without(used, parts, units, more, period)
    if units > used or (units == used and more >= parts) then
        return 0, 0
    elseif more > parts then
        return used - units - 1, parts - more + period
    end
    return used - units, parts - more
end

local function is_in_force(limit)
    return limit and (limit.ends_at == nil or limit.ends_at > now)
end

-- A limit as it is stored: its units or `none`, and its end if it has one. What is neither, since somebody has written it, is none.
local function limit_of(stored)
    local units, ends_at = string.match(stored or '', '^(%w+)$'), nil
    if not units then
        units, ends_at = string.match(stored or '', '^(%w+) (-?%d+)$')
    end
    local number = units and string.match(units, '^%d+$') and tonumber(units)
    if units ~= 'none' and not (number and number <= MOST_UNITS) then
        return nil
    end
    return { units = number, ends_at = ends_at and max(-LAST, min(tonumber(ends_at), LAST)) }
end

-- Tells others what became free.
local CHANGES, MOST_CHANGES, CHANGES_LAST = prefix .. '{shared}:changes', 10000, 3600
local last_change

local function tell(kind, policy, first, last)
    if last_change == nil then
        local newest = call('LINDEX', CHANGES, 0)
        last_change = newest and tonumber(string.match(newest, '^%d+')) or micros
    end
    last_change = last_change + 1
    call('LPUSH', CHANGES, table.concat({ text(last_change), kind, policy, first, last }, '\n'))
    call('LTRIM', CHANGES, 0, MOST_CHANGES - 1)
    call('EXPIRE', CHANGES, CHANGES_LAST)
end
