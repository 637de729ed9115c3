-- Sums that end at the ends of time.
CREATE OR REPLACE FUNCTION {s}.rate_limit_plus_1(instant bigint, millis bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN millis > 0 AND instant > 9223372036854775807 - millis THEN 9223372036854775807
        WHEN millis < 0 AND instant < -9223372036854775808 - millis THEN -9223372036854775808
        ELSE instant + millis
    END
$$;
-- The instant at which a batch is decided: the server's, unless it is given.
CREATE OR REPLACE FUNCTION {s}.rate_limit_now_1(given bigint, shift bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + shift)
$$;
-- The start of the window that holds an instant. A period of 0 stands for the months of the UTC calendar.
CREATE OR REPLACE FUNCTION {s}.rate_limit_window_start_1(instant bigint, period bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN period > 0 THEN {s}.rate_limit_plus_1(instant, -((instant % period + period) % period))
        WHEN instant >= 253399622400000 THEN 253399622400000
        WHEN instant < -210831897600000 THEN -9223372036854775808
        ELSE extract(epoch FROM date_trunc('month', to_timestamp((instant - (instant % 1000 + 1000) % 1000) / 1000) AT TIME ZONE 'UTC'))::bigint * 1000
    END
$$;
