-- Charges a batch, or looks: the arithmetic of `limit::algorithm`, for which this is a twin.
--
-- What is asked: `{is_look, rules, entries, limits, charges, ahead}`.
-- rules: `{kind, limit, rate, period, after, lasts, window}`; entries: `{rule, limits}`; limits: `{policy, key}`, or with what
-- is known already `{policy, key, of_key, of_all}`; charges: one list of `cost, is_forced, times, parts`, and for each part `entry,
-- rule, part that it blocks or 0`; ahead: one list of `entry, rule, units`.
-- The answer: now, the states before the batch, how many of each charge were admitted, what was granted ahead, the limits,
-- and of refusals the charge, the part, and when enough has left.
local asked = cmsgpack.unpack(ARGV[4])
local is_look, rules, charges, ahead = asked[1] == 1, asked[2], asked[5], asked[6]
local MOST_SEARCHES = 128

-- Limits that were set at run time.
local has_limits = {}
local limits = {}
for place, limit in ipairs(asked[4]) do
    local policy, key, of_key, of_all = limit[1], limit[2], limit[3] or false, limit[4] or false
    local name = prefix .. '{shared}:limits:' .. policy
    if has_limits[policy] == nil then
        has_limits[policy] = limit[3] ~= nil or call('EXISTS', name) == 1
    end
    if has_limits[policy] then
        if limit[3] == nil then
            local found = call('HMGET', name, key, '')
            of_key, of_all = found[1], found[2]
        end
        local own, all = limit_of(of_key ~= '' and of_key), limit_of(of_all ~= '' and of_all)
        limits[place] = { own = own, all = all, in_force = is_in_force(own) and own or is_in_force(all) and all or nil }
    end
end

local entries = {}
for place, entry in ipairs(asked[3]) do
    local rule = rules[entry[1]]
    entries[place] = { key = KEYS[place], limit_set = limits[entry[2]] and limits[entry[2]].in_force }
    load(entries[place], rule, is_look)
end

local out = { now }
for _, entry in ipairs(entries) do
    tell_state(entry, out)
end

-- The limit of a key, what of it comes back in each period, and whether it has none.
local function numbers(entry, rule)
    local set = entry.limit_set
    local limit, rate = rule[2], rule[3]
    if not set then
        return limit, rate, false
    elseif not set.units then
        return MOST_UNITS, rate, true
    elseif rate == limit or limit == 0 then
        return set.units, set.units, false
    end
    local in_proportion, rest = muldiv(set.units, rate, limit)
    return set.units, min(in_proportion + (rest > 0 and 1 or 0), MOST_UNITS), false
end

-- A bucket as it is now.
local function drained(entry, rule, rate)
    local at, is_moved = place(entry.at)
    local units, more = muldiv(max(0, at - entry.at), rate, rule[4])
    local used, parts = without(entry.used, entry.parts, units, more, rule[4])
    local since = is_moved and min(entry.since, at) or entry.since
    return { at = at, used = used, parts = parts, since = since, is_moved = is_moved }
end

local function over_at(block, rule)
    return block.at + (block.refused >= rule[5] and rule[6] or rule[7])
end

-- Refusals in a row as they are now.
local function block_of(entry, rule)
    local _, is_moved = place(entry.at)
    local block = { refused = entry.refused, at = is_moved and now or entry.at }
    if block.refused == 0 or over_at(block, rule) <= now then
        return { refused = 0, at = now }
    end
    return block
end

-- Whether a charge fits, and the state as of now where it is not that of the entry.
local function fits(entry, rule, cost, is_forced)
    local limit, rate, is_exempt = numbers(entry, rule)
    local always = is_forced or is_exempt or cost == 0
    local kind = entry.kind
    if kind == BUCKET then
        local bucket = drained(entry, rule, rate)
        local after = bucket.used + cost
        bucket.rate = rate
        return always or after < limit or (after == limit and bucket.parts == 0), bucket
    elseif kind == BLOCK then
        local block = block_of(entry, rule)
        return always or block.refused < rule[5], block
    elseif kind == LOG then
        return always or entry.used + cost <= limit, limit
    elseif kind == PAIR then
        local room = limit - entry.window.used - cost
        return always or (room >= 0 and is_no_more(entry.before.used, entry.left, room, rule[4]))
    end
    return always or entry.window.used + cost <= limit
end

local function take(entry, rule, cost, state)
    local kind = entry.kind
    if cost == 0 then
        return
    elseif kind == BUCKET then
        entry.at, entry.used, entry.parts, entry.since = state.at, min(state.used + cost, MOST), state.parts, state.since
        entry.rate, entry.period, entry.is_changed = state.rate, rule[4], true
    elseif kind == LOG then
        -- Beyond this the total could not be told from one that has begun anew.
        cost = min(cost, TOTALS / 2 - entry.used)
        entry.used, entry.units, entry.limit = entry.used + cost, entry.units + cost, state
        if not entry.first_at then
            entry.first_at, entry.first_units = entry.at, cost
        elseif entry.first_at == entry.at then
            entry.first_units = entry.first_units + cost
        end
    else
        entry.window.used = min(entry.window.used + cost, MOST)
        entry.is_changed = true
    end
end

local function refuse(entry, cost)
    if entry.window then
        entry.window.denied = min(entry.window.denied + cost, MOST)
        entry.is_changed = true
    end
end

local function set_block(entry, rule, refused, at)
    if entry.refused ~= refused or (refused > 0 and entry.at ~= at) then
        entry.refused, entry.at, entry.is_changed = refused, at, true
        entry.over_at = over_at(entry, rule)
    end
end

-- When so many units have left that a refused charge fits, where it takes more than the first event: the rank of the last of
-- them is found by halving.
local searches, searched = 0, {}
local function leaves(entry, place, wanted)
    local name = place .. ':' .. text(wanted)
    if searched[name] then
        return searched[name]
    elseif searches >= MOST_SEARCHES or not entry.first or wanted > entry.used_before then
        return nil
    end
    searches = searches + 1
    local key, before = entry.key, entry.first.total - entry.first.units
    local low, high = call('ZCOUNT', key, '-inf', text(entry.from)), call('ZCARD', key) - 1
    while low < high do
        local middle = floor((low + high) / 2)
        local left = event_of(call('ZRANGE', key, middle, middle)[1]).total - before
        if (left < 0 and left + TOTALS or left) >= wanted then
            high = middle
        else
            low = middle + 1
        end
    end
    searched[name] = min(event_of(call('ZRANGE', key, low, low)[1]).at, entry.at)
    return searched[name]
end

local waits = {}
local function note_wait(charge, part, entry, place, rule, cost)
    local limit = numbers(entry, rule)
    local wanted = entry.used + cost - limit
    if cost <= limit and wanted > (entry.first_units or 0) then
        local at = leaves(entry, place, wanted)
        if at then
            waits[#waits + 1] = charge
            waits[#waits + 1] = part
            waits[#waits + 1] = at
        end
    end
end

-- Decides one charge of several parts, which begin behind `from`.
local function decide(cost, is_forced, parts, from)
    local fit, states, is_admitted = {}, {}, true
    for part = 1, parts do
        local entry, rule = entries[charges[from + 3 * part - 2]], rules[charges[from + 3 * part - 1]]
        fit[part], states[part] = fits(entry, rule, cost, is_forced)
        is_admitted = is_admitted and fit[part]
    end
    for part = 1, parts do
        local entry, rule = entries[charges[from + 3 * part - 2]], rules[charges[from + 3 * part - 1]]
        local blocks, state = charges[from + 3 * part], states[part]
        if blocks > 0 then
            if is_admitted and not is_forced then
                set_block(entry, rule, 0, state.at)
            elseif fit[part] and not fit[blocks] then
                set_block(entry, rule, state.refused + 1, now)
            else
                set_block(entry, rule, state.refused, state.at)
            end
        elseif is_admitted then
            take(entry, rule, cost, state)
        else
            local is_blocked = false
            for other = 1, parts do
                is_blocked = is_blocked or (charges[from + 3 * other] == part and not fit[other])
            end
            if not fit[part] or is_blocked then
                refuse(entry, cost)
            end
            if entry.kind == BUCKET and state.is_moved then
                entry.at, entry.used, entry.parts, entry.since = state.at, state.used, state.parts, state.since
                entry.rate, entry.period, entry.is_changed = state.rate, rule[4], true
            end
        end
        entry.is_granted = entry.is_granted or is_admitted or parts == 1
    end
    return is_admitted, fit
end

-- So many equal charges of one window.
local function charge_window(entry, rule, cost, times)
    local limit, _, is_exempt = numbers(entry, rule)
    local window = entry.window
    local admitted = times
    if not is_exempt then
        local left = max(0, limit - window.used)
        admitted = min(times, (left - fmod(left, cost)) / cost)
    end
    window.used = min(window.used + admitted * cost, MOST)
    window.denied = min(window.denied + (times - admitted) * cost, MOST)
    entry.is_changed, entry.is_granted = true, true
    return admitted
end

local place, charge = 1, 0
while place <= #charges do
    charge = charge + 1
    local cost, is_forced, times, parts = charges[place], charges[place + 1] == 1, charges[place + 2], charges[place + 3]
    local from = place + 3
    local first, rule = entries[charges[from + 1]], rules[charges[from + 2]]
    local admitted = 0
    if is_look then
        admitted = 0
    elseif parts == 1 and first.kind <= MONTH and not is_forced then
        admitted = charge_window(first, rule, cost, times)
    else
        for _ = 1, times do
            local is_admitted = decide(cost, is_forced, parts, from)
            admitted = admitted + (is_admitted and 1 or 0)
        end
    end
    for part = 1, admitted < times and parts or 0 do
        local number = charges[from + 3 * part - 2]
        if entries[number].kind == LOG then
            note_wait(charge, part, entries[number], number, rules[charges[from + 3 * part - 1]], cost)
        end
    end
    out[#out + 1] = admitted
    place = from + 3 * parts + 1
end

-- What is asked for ahead comes after all charges, up to an eighth of what is left. What another policy refuses would be granted
-- for nothing.
for at = 1, #ahead, 3 do
    local entry, rule, units = entries[ahead[at]], rules[ahead[at + 1]], ahead[at + 2]
    local limit, _, is_exempt = numbers(entry, rule)
    local used = entry.window.used
    if entry.before then
        local before, rest = muldiv(entry.left, entry.before.used, rule[4])
        used = used + before + (rest > 0 and 1 or 0)
    end
    local left = is_exempt and MOST_UNITS or max(0, limit - used)
    local granted = entry.is_granted == false and 0 or min(units, floor(left / 8))
    if granted > 0 then
        take(entry, rule, granted)
    end
    out[#out + 1] = granted
end

for number = 1, #asked[4] do
    local set = limits[number]
    for _, limit in ipairs({ set and set.own or false, set and set.all or false }) do
        -- Nothing is set, a limit, none; and its end.
        out[#out + 1] = limit and (limit.units and 1 or 2) or 0
        if limit then
            out[#out + 1] = limit.units or 0
            out[#out + 1] = limit.ends_at and 1 or 0
            out[#out + 1] = limit.ends_at or 0
        end
    end
end
for _, wait in ipairs(waits) do
    out[#out + 1] = wait
end
if not is_look then
    for _, entry in ipairs(entries) do
        write(entry)
    end
end
return out
