/* The optimizer's step: the norm of the gradients and what it scales, AdamW. */
#include "functions.cuh"

BY__KERNEL(clip_scale, 256)
{
    float sum = 0.0f;
    float strange = 0.0f;
    for (int part = 0; part < a.parts; part++) {
        for (int64_t i = threadIdx.x; i < a.count[part]; i += 256) {
            float v = a.part[part][i];
            sum += v;
            strange += by__is_finite(v) ? 0.0f : 1.0f;
        }
    }
    for (int64_t i = threadIdx.x; i < a.loss_count; i += 256) {
        strange += by__is_finite(a.losses[i]) ? 0.0f : 1.0f;
    }
    sum = by__block_sum(sum);
    strange = by__block_sum(strange);
    if (threadIdx.x != 0) {
        return;
    }
    if (a.failed == nullptr) { /* a part of the parts */
        a.norm[0] = sum;
        return;
    }
    float factor = a.factor == nullptr ? 1.0f : a.factor[0];
    float norm = by__root(sum) / factor;
    float scale = a.clip == 0.0f ? 1.0f : a.clip / (norm + 1e-6f);
    float failed = strange > 0.0f ? 1.0f : a.failed[0];
    a.failed[0] = failed;
    a.norm[0] = norm;
    a.scale[0] = failed != 0.0f ? BY__NAN : (scale > 1.0f ? 1.0f : scale) / factor;
}

BY__KERNEL(adamw, 256)
{
    int64_t i = by__first_element();
    float p[BY__EACH];
    float g[BY__EACH];
    float m[BY__EACH];
    float v[BY__EACH];
    float scale = a.scale[0];
    if (i >= a.count || !by__is_finite(scale)) {
        return; /* a step that has failed changes nothing */
    }
    float rate = a.hyper[0] * (a.lr_scale == 0.0f ? 1.0f : a.lr_scale);
    float keep = 1.0f - rate * a.decay;
    float step = rate / a.hyper[1];
    float correction = 1.0f / by__root(a.hyper[2]);
    by__get_some(p, a.p, BY__F32, i, a.count);
    by__get_some(g, a.g, BY__F32, i, a.count);
    by__get_some(m, a.m, BY__F32, i, a.count);
    by__get_some(v, a.v, BY__F32, i, a.count);
    for (int k = 0; k < BY__EACH; k++) {
        float gradient = g[k] * scale;
        m[k] = by__fma(m[k], a.beta1, gradient * a.rest1);
        v[k] = by__fma(v[k], a.beta2, gradient * gradient * a.rest2);
        float root = by__fma(by__root(v[k]), correction, a.eps);
        p[k] = by__fma(-step, m[k] / root, p[k] * keep);
    }
    by__put_some(a.p, BY__F32, i, a.count, p);
    by__put_some(a.m, BY__F32, i, a.count, m);
    by__put_some(a.v, BY__F32, i, a.count, v);
    if (a.copy != nullptr) {
        by__put_some(a.copy, a.copy_dtype, i, a.count, p);
    }
}
