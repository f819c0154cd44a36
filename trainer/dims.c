/* dims.c - where sizes are derived. */
#include "trainer/dims.h"

#include "kernels/check.h"
#include "kernels/real.h"

/* Logits of at most this many elements exist at a time: 64 MB in f32. */
enum { LOGITS_MAX = 1 << 24, CHUNK_MIN = 16 };

static int64_t chunk_rows(int64_t rows, int64_t vocabulary)
{
    int64_t chunk = LOGITS_MAX / vocabulary;

    chunk = chunk < CHUNK_MIN ? CHUNK_MIN : chunk;
    return chunk < rows ? chunk : rows;
}

static void divide_no_layers(struct dims *d)
{
    d->pp = 1;
    d->pp_rank = 0;
    d->chunks = 1;
    d->layers[0] = (struct layers){.first = 0, .count = (int)d->L};
    d->passes = 0;
}

static void divide_no_experts(struct dims *d)
{
    struct mesh one;
    struct err err = {0};
    const struct mesh_sizes sizes = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1};

    CHECK(mesh_make(&one, &sizes, 0, &err) == 0, "%s", err.text);
    dims_divide_experts(d, &one, false);
}

static struct dims from_arch(const struct arch *a)
{
    struct dims d = {
        .arch = *a, .D = a->D, .F = a->F, .L = a->L, .H = a->H, .G = a->G, .K = a->K, .V = a->V};

    d.E = a->moe.E;
    d.X = a->moe.X;
    d.Y = a->moe.Y;
    dims_divide(&d, 1, 0);
    divide_no_experts(&d);
    d.dp = 1;
    d.cp = 1;
    divide_no_layers(&d);
    d.slices[VECTOR_DENSE] = 1;
    d.bucket = FLAT_BUCKET;
    return d;
}

void dims_divide(struct dims *d, int tp, int rank)
{
    CHECK(d->H % tp == 0 && d->F % tp == 0 && d->Y % tp == 0 && (d->G % tp == 0 || tp % d->G == 0),
          "tp %d of %lld heads in %lld groups", tp, (long long)d->H, (long long)d->G);
    d->tp = tp;
    d->tp_rank = rank;
    d->sp = d->sequence ? tp : 1;
    CHECK(d->S % d->sp == 0, "%lld places on %d ranks", (long long)d->S, d->sp);
    d->R_sp = d->R / d->sp;
    d->H_tp = d->H / tp;
    d->F_tp = d->F / tp;
    d->Y_tp = d->Y / tp;
    d->G_tp = tp < d->G ? d->G / tp : 1;
    d->G0 = rank * d->G / tp;
    d->V_tp = (d->V + tp - 1) / tp;
    d->V0 = rank * d->V_tp;
    if (d->chunk > 0) {
        d->chunk = chunk_rows(d->R, d->V_tp);
    }
}

void dims_divide_context(struct dims *d, int cp, int rank)
{
    CHECK(cp == 1 || d->S_all % (2 * (int64_t)cp) == 0, "%lld places on %d ranks",
          (long long)d->S_all, cp);
    d->cp = cp;
    d->cp_rank = rank;
    d->S = d->S_all / cp;
    d->R = d->B * d->S;
    d->R_sp = d->R / d->sp;
    d->chunk = chunk_rows(d->R, d->V_tp);
}

int64_t dims_place0(const struct dims *d)
{
    return d->cp_rank * (d->S / 2);
}

int64_t dims_skip(const struct dims *d)
{
    return 2 * ((int64_t)d->cp - 1 - d->cp_rank) * (d->S / 2);
}

void dims_divide_experts(struct dims *d, const struct mesh *m, bool distributed)
{
    CHECK(d->E % m->size.ep == 0 && d->X % m->size.etp == 0,
          "%lld experts of %lld on %d x %d ranks", (long long)d->E, (long long)d->X, m->size.ep,
          m->size.etp);
    d->ep = m->size.ep;
    d->ep_rank = m->ep;
    d->etp = m->size.etp;
    d->etp_rank = m->etp;
    d->edp = m->edp;
    d->edp_rank = m->edp_rank;
    d->E_ep = d->E / d->ep;
    d->E0 = d->ep_rank * d->E_ep;
    d->X_etp = d->X / d->etp;
    d->slices[VECTOR_EXPERTS] = distributed ? d->edp : 1;
    d->slice[VECTOR_EXPERTS] = distributed ? d->edp_rank : 0;
}

void dims_divide_layers(struct dims *d, const struct placement *p, int rank, int passes)
{
    CHECK(rank >= 0 && rank < p->ranks && p->chunks <= PLACEMENT_CHUNKS &&
              placement_first(p, p->ranks * p->chunks) == d->L,
          "rank %d of %d, %lld layers", rank, p->ranks, (long long)d->L);
    d->pp = p->ranks;
    d->pp_rank = rank;
    d->chunks = p->chunks;
    d->passes = passes;
    for (int c = 0; c < p->chunks; c++) {
        const int stage = c * p->ranks + rank;
        d->layers[c] = (struct layers){placement_first(p, stage), p->layers[stage]};
    }
}

void dims_divide_batch(struct dims *d, int dp, int rank, bool distributed)
{
    CHECK(d->micros % dp == 0, "%lld microbatches on %d ranks", (long long)d->micros, dp);
    d->dp = dp;
    d->dp_rank = rank;
    d->micros /= dp;
    d->micro0 = d->micros * rank;
    d->slices[VECTOR_DENSE] = distributed ? dp * d->cp : 1;
    d->slice[VECTOR_DENSE] = distributed ? rank * d->cp + d->cp_rank : 0;
}

struct dims dims_whole(const struct dims *d)
{
    struct dims whole = *d;

    dims_divide(&whole, 1, 0);
    divide_no_experts(&whole);
    divide_no_layers(&whole);
    whole.slices[VECTOR_DENSE] = 1;
    whole.slice[VECTOR_DENSE] = 0;
    whole.behind = false;
    return whole;
}

static enum dtype type_of(enum precision precision)
{
    switch (precision) {
    case PRECISION_F32: return DTYPE_REAL;
    case PRECISION_BF16: return DTYPE_BF16;
    case PRECISION_FP16: return DTYPE_F16;
    }
    CHECK(false, "precision %d", (int)precision);
}

struct dims dims_make(const struct arch *a, const struct spec *s, int64_t micro_batch,
                      int64_t sequence, int threads)
{
    struct dims d = from_arch(a);

    CHECK(s->global_batch_size % micro_batch == 0, "%lld samples in microbatches of %lld",
          (long long)s->global_batch_size, (long long)micro_batch);
    d.B = micro_batch;
    d.S = sequence;
    d.S_all = sequence;
    d.R = d.B * d.S;
    d.R_sp = d.R;
    d.chunk = chunk_rows(d.R, d.V);
    d.micros = s->global_batch_size / micro_batch;
    d.act = type_of((enum precision)s->precision);
    d.scale = scale_rules_of(s);
    d.masters = d.act != DTYPE_REAL;
    d.training = true;
    d.behind = s->async_save == ASYNC_YES;
    d.overlaps = s->overlap_grad_reduce == OVERLAP_YES;
    struct err err = {0};
    CHECK(recompute_read(&d.recompute, s, &err) == 0, "%s", err.text);
    d.dropout = s->dropout;
    d.aux_coef = s->moe_aux_loss_coeff < 0.0 ? a->moe.aux_coef : s->moe_aux_loss_coeff;
    d.aux_all = s->moe_aux_loss_scaling == AUX_HUGGINGFACE;
    d.z_coef = s->moe_z_loss_coeff;
    d.freeze = s->freeze[0] != '\0' ? s->freeze : NULL;
    d.threads = threads;
    return d;
}

struct dims dims_serving(const struct arch *a, enum dtype type,
                         const int64_t slots_positions_rows[3], int threads)
{
    struct dims d =
        dims_inference(a, type, slots_positions_rows[0], slots_positions_rows[1], threads);

    d.R = slots_positions_rows[2];
    d.R_sp = d.R;
    d.chunk = d.B < d.R ? d.B : d.R;
    return d;
}

struct dims dims_inference(const struct arch *a, enum dtype type, int64_t batch, int64_t positions,
                           int threads)
{
    struct dims d = from_arch(a);

    d.B = batch;
    d.S = positions;
    d.S_all = positions;
    d.R = d.B * d.S;
    d.R_sp = d.R;
    d.chunk = chunk_rows(d.R, d.V);
    d.micros = 1;
    d.act = type;
    d.threads = threads;
    return d;
}
