/* test_authorise.c - the table of rights, row by row, and what stands around it. */
#include "server/authorise.h"

#include <string.h>

#include "tests/tap.h"

enum { ME = 7, OTHER = 8 };
enum whose { OWN, OWN_PRIVATE, OF_OTHER, OF_OTHER_PRIVATE, WHOSE_COUNT };

/* What is promised, written anew: Y may, N is refused, H is not there. One letter each of OWN, OWN_PRIVATE,
 * OF_OTHER, OF_OTHER_PRIVATE. */
static const char *const promised[ROLE_COUNT][DEED_COUNT] = {
    [ROLE_VIEWER] = {[DEED_SEE_JOB] = "YYYH",
                     [DEED_READ_JOB] = "YYNH",
                     [DEED_CHANGE_JOB] = "NNNH",
                     [DEED_RAISE_JOB] = "NNNH",
                     [DEED_READ_FILE] = "YYHH",
                     [DEED_CHANGE_FILE] = "NNHH",
                     [DEED_SUBMIT] = "NNNN",
                     [DEED_MANAGE] = "NNNN"},
    [ROLE_MEMBER] = {[DEED_SEE_JOB] = "YYYH",
                     [DEED_READ_JOB] = "YYNH",
                     [DEED_CHANGE_JOB] = "YYNH",
                     [DEED_RAISE_JOB] = "NNNH",
                     [DEED_READ_FILE] = "YYHH",
                     [DEED_CHANGE_FILE] = "YYHH",
                     [DEED_SUBMIT] = "YYNN",
                     [DEED_MANAGE] = "NNNN"},
    [ROLE_ADMIN] = {[DEED_SEE_JOB] = "YYYY",
                    [DEED_READ_JOB] = "YYYY",
                    [DEED_CHANGE_JOB] = "YYYY",
                    [DEED_RAISE_JOB] = "YYYY",
                    [DEED_READ_FILE] = "YYYY",
                    [DEED_CHANGE_FILE] = "YYYY",
                    [DEED_SUBMIT] = "YYYY",
                    [DEED_MANAGE] = "YYYY"},
};

static struct identity of_role(enum role role)
{
    return (struct identity){.user_id = ME, .name = "ann", .role = role};
}

static char verdict(const struct identity *who, enum deed deed, enum whose whose, struct err *err)
{
    const bool own = whose == OWN || whose == OWN_PRIVATE;
    const bool is_private = whose == OWN_PRIVATE || whose == OF_OTHER_PRIVATE;
    const int rc = authorise(who, deed, own ? ME : OTHER, is_private, "job job-x", err);
    const bool may = may_do(who, deed, own ? ME : OTHER, is_private);

    if (may != (rc == 0)) {
        return '?';
    }
    switch (rc) {
    case 0: return 'Y';
    case ERR_FORBIDDEN: return 'N';
    case ERR_NOT_FOUND: return 'H';
    default: return '?';
    }
}

static void every_role_may_what_is_promised_and_nothing_else(void)
{
    for (int role = 0; role < ROLE_COUNT; role++) {
        const struct identity who = of_role((enum role)role);
        for (int deed = 0; deed < DEED_COUNT; deed++) {
            for (int whose = 0; whose < WHOSE_COUNT; whose++) {
                struct err err = {0};
                const char got = verdict(&who, (enum deed)deed, (enum whose)whose, &err);
                if (got != promised[role][deed][whose]) {
                    printf("# %s, deed %d, thing %d: %c\n", role_word((enum role)role), deed, whose,
                           got);
                }
                EXPECT(got == promised[role][deed][whose]);
            }
        }
    }
}

static void a_refusal_is_a_sentence_and_a_hidden_thing_reads_like_a_missing_one(void)
{
    for (int role = 0; role < ROLE_COUNT; role++) {
        const struct identity who = of_role((enum role)role);
        for (int deed = 0; deed < DEED_COUNT; deed++) {
            for (int whose = 0; whose < WHOSE_COUNT; whose++) {
                struct err err = {0};
                const char got = verdict(&who, (enum deed)deed, (enum whose)whose, &err);
                EXPECT(got != 'N' || strlen(err.text) > 20);
                EXPECT(got != 'H' || strcmp(err.text, "there is no job job-x") == 0);
            }
        }
    }
}

static void nobody_may_nothing(void)
{
    const struct identity nobody = {.role = ROLE_ADMIN};
    const struct identity wrong = {.user_id = ME, .role = ROLE_COUNT};

    for (int deed = 0; deed < DEED_COUNT; deed++) {
        for (int64_t owner = -1; owner <= ME; owner++) {
            EXPECT(!may_do(NULL, (enum deed)deed, owner, false));
            EXPECT(!may_do(&nobody, (enum deed)deed, owner, false));
            EXPECT(!may_do(&wrong, (enum deed)deed, owner, false));
        }
    }
    const struct identity admin = of_role(ROLE_ADMIN);
    struct err err = {0};
    EXPECT(!may_do(&admin, DEED_COUNT, ME, false));
    EXPECT(authorise(&admin, DEED_COUNT, ME, false, "x", &err) == ERR_FORBIDDEN);
    EXPECT(authorise(NULL, DEED_SEE_JOB, 0, false, "x", &err) == ERR_FORBIDDEN);
}

static void more_of_a_role_is_never_less(void)
{
    for (int role = ROLE_VIEWER; role < ROLE_ADMIN; role++) {
        const struct identity less = of_role((enum role)role),
                              more = of_role((enum role)(role + 1));
        for (int deed = 0; deed < DEED_COUNT; deed++) {
            for (int whose = 0; whose < WHOSE_COUNT; whose++) {
                const int64_t owner = whose < OF_OTHER ? ME : OTHER;
                const bool is_private = whose == OWN_PRIVATE || whose == OF_OTHER_PRIVATE;
                EXPECT(!may_do(&less, (enum deed)deed, owner, is_private) ||
                       may_do(&more, (enum deed)deed, owner, is_private));
            }
        }
    }
}

static void roles_have_words(void)
{
    for (int role = 0; role < ROLE_COUNT; role++) {
        EXPECT(role_from_word(role_word((enum role)role)) == (enum role)role);
    }
    EXPECT(role_from_word("root") == ROLE_COUNT && role_from_word("") == ROLE_COUNT);
}

int main(void)
{
    RUN(every_role_may_what_is_promised_and_nothing_else);
    RUN(a_refusal_is_a_sentence_and_a_hidden_thing_reads_like_a_missing_one);
    RUN(nobody_may_nothing);
    RUN(more_of_a_role_is_never_less);
    RUN(roles_have_words);
    return tap_done();
}
