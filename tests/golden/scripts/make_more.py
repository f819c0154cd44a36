#!/usr/bin/env python3
"""Further cases, float64 only: rope scaling, biases, sliding window, erf GELU, packed documents. Needs python3-torch."""
import os, sys, numpy as np, torch
sys.path.insert(0,os.path.dirname(os.path.abspath(__file__)))
import st, ref
from make_golden import std_case, llama_cfg, gpt2_cfg, llama_names, init, batches, ctx, dump, N, total_loss
CASES=dict(
    llama3_rope=(llama_cfg(hidden_size=24,head_dim=16,num_attention_heads=4,num_key_value_heads=2,intermediate_size=56,rope_theta=500000.0,max_position_embeddings=128,rope_scaling=dict(rope_type='llama3',factor=8.0,low_freq_factor=1.0,high_freq_factor=4.0,original_max_position_embeddings=16)),41,2,48),
    qwen2_bias=(llama_cfg(architectures=['Qwen2ForCausalLM'],model_type='qwen2',num_key_value_heads=2,tie_word_embeddings=True,rope_theta=1e6,rms_norm_eps=1e-6),61,3,16),
    llama_all_bias=(llama_cfg(attention_bias=True,mlp_bias=True,num_key_value_heads=1,rope_scaling=dict(rope_type='linear',factor=3.0)),71,2,17),
    mistral_window=(llama_cfg(architectures=['MistralForCausalLM'],model_type='mistral',sliding_window=5,num_key_value_heads=2,head_dim=12),81,2,19),
    gpt2_erf_inner=(gpt2_cfg(activation_function='gelu',n_inner=44),91,2,15))
for name,(c,seed,B,S) in CASES.items():
    std_case(name,c,seed,B,S,std=0.08 if c['model_type']=='gpt2' else 0.12)
    for f in os.listdir(ctx(name)):
        if 'f32' in f or 'step0' in f: os.remove(ctx(name)+'/'+f)
c=llama_cfg(num_key_value_heads=2); d=ctx('packing'); W=init(llama_names(c),101); dump(d+'/config.json',c); st.save(d+'/model.safetensors',W,{'format':'pt'})
B,S=2,20; x=batches(102,1,B,S,c['vocab_size'])[0]; cuts=[[0,7],[0,12]]; segs=np.zeros((B,S),np.int64); pos=np.zeros((B,S),np.int64); first=np.zeros((B,S),np.int64); y=x.copy()
for r in range(B):
    for i in range(S):
        s=max(k for k in cuts[r] if k<=i); segs[r,i]=cuts[r].index(s); pos[r,i]=i-s; first[r,i]=s
        if i==s: y[r,i]=-100      # the first token of a document is nobody's label
w={k:torch.tensor(v,dtype=torch.float64,requires_grad=True) for k,v in W.items()}
tot,lm,aux,lg,ex,n=total_loss(c,w,torch.tensor(x),torch.tensor(y),pos=torch.tensor(pos),segs=torch.tensor(segs))
g=torch.autograd.grad(tot,list(w.values())); st.save(d+'/grads_f64.safetensors',{k:N(v) for k,v in zip(w,g)})
st.save(d+'/batch.safetensors',{'input_ids':x,'labels':y,'position_ids':pos,'first':first}); dump(d+'/expected.json',{'f64':{'loss':float(tot),'tokens':n}})
