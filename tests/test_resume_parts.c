/* test_resume_parts.c - real runs that train adapters or leave parts as they are: killed and resumed, they are bit for bit
 * the runs that never stopped.
 */
#include "tests/resume.h"

#include <math.h>

/* Adapters on the model of the first run. */
static void adapters_resume_as_if_they_had_never_stopped(void)
{
    char more[PATH + 200], low[PATH + 260];

    (void)snprintf(more, sizeof more,
                   ",\"model\":\"%s/whole/checkpoints/latest\",\"lora_rank\":4,"
                   "\"lora_dropout\":0.2,\"lora_targets\":\"v_proj,down_proj\"",
                   scratch);
    (void)snprintf(low, sizeof low, "%s,\"precision\":\"bf16\",\"recompute\":\"full\"", more);
    const struct outcome whole = run_through("lora-whole", more);
    const struct outcome killed = run_interrupted("lora-killed", more, 17, SIGKILL);
    const struct outcome low_whole = run_through("lora-low-whole", low);
    const struct outcome low_killed = run_interrupted("lora-low-killed", low, 23, SIGKILL);

    EXPECT(same(&whole, &killed));
    EXPECT(same(&low_whole, &low_killed));
    EXPECT(whole.attempts == 1 && killed.attempts == 2 && !same(&whole, &low_whole));
}

/* So do the embedding, the head and the norms that are trained whole beside them. */
static void what_is_trained_beside_adapters_resumes(void)
{
    char more[PATH + 260], from[2 * PATH + 200];
    struct outcome before;

    (void)snprintf(more, sizeof more,
                   ",\"model\":\"%s/whole/checkpoints/latest\",\"lora_rank\":2,"
                   "\"lora_also\":\"embed_tokens,lm_head,*norm\",\"precision\":\"bf16\"",
                   scratch);
    const struct outcome whole = run_through("also-whole", more);
    const struct outcome killed = run_interrupted("also-killed", more, 17, SIGKILL);
    EXPECT(same(&whole, &killed) && killed.attempts == 2);
    (void)snprintf(from, sizeof from,
                   ",\"precision\":\"bf16\",\"model\":\"%s/whole/checkpoints/latest\","
                   "\"adapter\":\"%s/also-whole/checkpoints/latest\"",
                   scratch, scratch);
    const struct outcome next = run_through("also-next", from);
    char dir[PATH];
    (void)snprintf(dir, sizeof dir, "%s/also-whole", scratch);
    (void)read_events(&before, dir);
    EXPECT_NEAR(next.eval0, before.eval, 1e-12);
}

/* A run that goes on from an adapter begins where that one ended. */
static void an_adapter_is_gone_on_from(void)
{
    char more[2 * PATH + 200];

    (void)snprintf(more, sizeof more,
                   ",\"model\":\"%s/whole/checkpoints/latest\","
                   "\"adapter\":\"%s/lora-whole/checkpoints/latest\"",
                   scratch, scratch);
    const struct outcome first = run_through("lora-whole-again", more);
    struct outcome before;
    char dir[PATH];
    (void)snprintf(dir, sizeof dir, "%s/lora-whole", scratch);
    (void)read_events(&before, dir);
    EXPECT_NEAR(first.eval0, before.eval, 1e-12);
    EXPECT(fabs(before.eval0 - before.eval) > 1e-4);
}

/* The embedding and the first block stay as they are; resuming keeps it so. */
static void frozen_parts_stay_and_resume(void)
{
    const char *more = ",\"freeze\":\"model.embed_tokens,*.layers.0\",\"precision\":\"bf16\"";
    const struct outcome whole = run_through("freeze-whole", more);
    const struct outcome killed = run_interrupted("freeze-killed", more, 17, SIGKILL);

    EXPECT(same(&whole, &killed));
}

int main(void)
{
    scratch_make();
    write_text(in_scratch("text.txt"), 400);
    (void)run_through("whole", "");
    RUN(adapters_resume_as_if_they_had_never_stopped);
    RUN(what_is_trained_beside_adapters_resumes);
    RUN(an_adapter_is_gone_on_from);
    RUN(frozen_parts_stay_and_resume);
    scratch_remove();
    return tap_done();
}
