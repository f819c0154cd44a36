/* room.c - how much of a device's memory a job may have. */
#include "server/room.h"

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Of listed processes, ours or the others. */
static uint64_t held_by(const struct device_now *now, bool ours)
{
    uint64_t bytes = 0;

    for (int i = 0; i < now->process_count && i < DEVICE_PROCESSES; i++) {
        const struct device_process *p = &now->processes[i];
        if (p->is_ours == ours) {
            bytes = sum(bytes, p->bytes > 0 || ours ? p->bytes : now->used_bytes);
        }
    }
    return bytes;
}

uint64_t room_foreign(const struct device *d, const struct device_now *now)
{
    return smaller(held_by(now, false), d->memory_bytes);
}

bool room_is_busy(const struct device *d, const struct device_now *now)
{
    return room_foreign(d, now) > d->memory_bytes / 32 || now->process_count > DEVICE_PROCESSES;
}

/* What the system keeps is no part of `free`; the margin is what else the capacity leaves out. */
static uint64_t without_margin(const struct device *d, uint64_t free, uint64_t capacity)
{
    const uint64_t margin = less(d->memory_bytes, sum(d->reserved_bytes, capacity));

    return smaller(less(free, margin), capacity);
}

uint64_t room_now(const struct device *d, const struct device_now *now, uint64_t capacity)
{
    return without_margin(d, now->free_bytes, capacity);
}

uint64_t room_after_run(const struct device *d, const struct device_now *now, uint64_t capacity,
                        bool is_told)
{
    return is_told ? without_margin(d, sum(now->free_bytes, held_by(now, true)), capacity)
                   : less(capacity, room_foreign(d, now));
}

uint64_t room_slot_now(const struct main_memory *m, uint64_t capacity)
{
    return smaller(less(m->free, m->untouched), capacity);
}

uint64_t room_slot_after(const struct main_memory *m, uint64_t capacity)
{
    return smaller(sum(sum(m->free, m->touched), m->loaned), capacity);
}
