-- The states of counters: read when they are first met, written when all charges are decided.

-- A counter that is found without an end gets one.
local function mend_end(key, lasts)
    if call('PTTL', key) == -1 then
        call('PEXPIRE', key, text(max(1, min(lasts, LONGEST_TTL))))
    end
end

local function set_end(key, lasts)
    call('PEXPIRE', key, text(max(1, min(lasts, LONGEST_TTL))))
end

local function read_window(key)
    local row = call('HMGET', key, 'used', 'denied', 'epoch')
    local exists = row[3] and true or false
    -- One that begins now is told from its predecessors, which may have been lost.
    return { key = key, exists = exists, used = whole(row[1]), denied = whole(row[2]), epoch = tonumber(row[3]) or micros }
end

-- The window before. A refund may come late: it is kept for a period.
local function load_windows(entry, rule)
    local kind, period = rule[1], rule[4]
    local start, ends = span_of(kind, period)
    local needed = kind == PAIR and period + LONGEST_WAY or period
    entry.window = read_window(entry.key .. ':' .. text(start))
    entry.lasts = ends + max(needed, LONGEST_WAY) - now
    if kind == PAIR then
        entry.before = read_window(entry.key .. ':' .. text(start - period))
        if not entry.before.exists then
            -- It never begins any more.
            entry.before.epoch = 0
        end
        entry.left = ends - now
    end
end

-- The clock has stepped back: what is later than now is moved to now, as one, and what had left the window before goes, or
-- it would be inside again.
local function move_events(key, newest, period)
    local left = newest.at - period
    local first = event_of(call('ZRANGEBYSCORE', key, '(' .. text(max(now, left)), '+inf', 'LIMIT', 0, 1)[1])
    local own = call('ZRANGEBYSCORE', key, text(now), text(now))[1]
    local units = units_between(first, newest) + (own and event_of(own).units or 0)
    put_event(key, now, units, newest.total)
    if own then
        call('ZREM', key, own)
    end
    call('ZREMRANGEBYSCORE', key, '(' .. text(now), '+inf')
    call('ZREMRANGEBYSCORE', key, '-inf', left < now and text(left) or '(' .. text(now))
    set_end(key, period + LONGEST_WAY)
    return event_of(call('ZRANGE', key, -1, -1)[1])
end

local function load_log(entry, rule, is_look)
    local period = rule[4]
    entry.period, entry.units, entry.at, entry.used = period, 0, now, 0
    local newest = call('ZRANGE', entry.key, -1, -1)[1]
    if not newest then
        return
    end
    newest = event_of(newest)
    local at, is_moved = place(newest.at)
    if is_moved and not is_look then
        newest = move_events(entry.key, newest, period)
    end
    entry.newest, entry.at = newest, at
    entry.from = max(newest.at, now) - period
    local first = call('ZRANGEBYSCORE', entry.key, '(' .. text(entry.from), '+inf', 'LIMIT', 0, 1)[1]
    if first then
        first = event_of(first)
        entry.first, entry.used = first, units_between(first, newest)
        entry.first_at = min(first.at, at)
        entry.first_units = first.at <= at and first.units or entry.used
    end
    entry.used_before = entry.used
end

local function load_bucket(entry)
    local row = call('HMGET', entry.key, 'at', 'used', 'parts', 'since')
    entry.exists = row[1] and true or false
    entry.at, entry.used, entry.parts = tonumber(row[1]) or now, whole(row[2]), whole(row[3])
    entry.since = tonumber(row[4]) or now
end

local function load_block(entry)
    local row = call('HMGET', entry.key, 'refused', 'at')
    entry.exists = row[1] and true or false
    entry.refused, entry.at = whole(row[1]), tonumber(row[2]) or now
end

local function load(entry, rule, is_look)
    local kind = rule[1]
    entry.kind = kind
    if kind <= PAIR then
        load_windows(entry, rule)
    elseif kind == LOG then
        load_log(entry, rule, is_look)
    elseif kind == BUCKET then
        load_bucket(entry)
    else
        load_block(entry)
    end
end

-- Tells a counter as it was found.
local function tell_state(entry, out)
    local function put(value)
        out[#out + 1] = value
    end
    local function put_event_of(event)
        put(event and 1 or 0)
        if event then
            put(event.at)
            put(event.units)
            put(event.total)
        end
    end
    local function put_window(window)
        put(window.used)
        put(window.denied)
        put(window.epoch)
    end
    if entry.kind == LOG then
        put_event_of(entry.newest)
        put_event_of(entry.first)
    elseif entry.kind == BUCKET then
        put(entry.at)
        put(entry.used)
        put(entry.parts)
        put(entry.since)
    elseif entry.kind == BLOCK then
        put(entry.refused)
        put(entry.at)
    else
        put_window(entry.window)
        if entry.before then
            put_window(entry.before)
        end
    end
end

local function write_log(entry)
    local key, newest = entry.key, entry.newest
    if entry.units == 0 then
        if newest then
            mend_end(key, newest.at + entry.period + LONGEST_WAY - now)
        end
        return
    end
    local units, total = entry.units, newest and newest.total or 0
    local is_same = newest and newest.at == entry.at
    -- A server without memory refuses to add, and takes away: what is added comes first in all scripts.
    put_event(key, entry.at, is_same and units + newest.units or units, fmod(total + units, TOTALS))
    if is_same then
        call('ZREM', key, newest.member)
    end
    set_end(key, entry.at + entry.period + LONGEST_WAY - now)
    -- What has left the window goes now and then, a bounded part of it at a time.
    local step = min(max(floor(entry.limit / 2), 1), 64)
    if floor(total / step) ~= floor((total + entry.units) / step) then
        local expired = call('ZCOUNT', key, '-inf', text(entry.at - entry.period))
        if expired > 0 then
            call('ZREMRANGEBYRANK', key, 0, min(expired, 1000) - 1)
        end
    end
end

local function write_bucket(entry)
    if not entry.is_changed then
        if entry.exists then
            mend_end(entry.key, LONGEST_TTL)
        end
        return
    end
    call('HSET', entry.key, 'at', text(entry.at), 'used', text(entry.used), 'parts', text(entry.parts), 'since', text(entry.since))
    local drains = entry.rate > 0 and ceil((entry.used + 1) * entry.period / entry.rate) or LONGEST_TTL
    set_end(entry.key, entry.at - now + drains + LONGEST_WAY)
end

local function write_block(entry)
    if not entry.is_changed then
        if entry.exists then
            mend_end(entry.key, LONGEST_TTL)
        end
    elseif entry.refused == 0 then
        call('DEL', entry.key)
    else
        call('HSET', entry.key, 'refused', text(entry.refused), 'at', text(entry.at))
        set_end(entry.key, entry.over_at - now + LONGEST_WAY)
    end
end

local function write(entry)
    local window = entry.window
    if entry.kind == LOG then
        write_log(entry)
    elseif entry.kind == BUCKET then
        write_bucket(entry)
    elseif entry.kind == BLOCK then
        write_block(entry)
    elseif entry.is_changed and window.exists then
        call('HSET', window.key, 'used', text(window.used), 'denied', text(window.denied))
        mend_end(window.key, entry.lasts)
    elseif entry.is_changed then
        call('HSET', window.key, 'used', text(window.used), 'denied', text(window.denied), 'epoch', text(window.epoch))
        set_end(window.key, entry.lasts)
    elseif window.exists then
        mend_end(window.key, entry.lasts)
    end
end
