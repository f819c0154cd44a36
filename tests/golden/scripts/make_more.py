#!/usr/bin/env python3
"""Further cases, float64 only: rope scaling, biases, sliding window, erf GELU, packed documents, adapters, frozen parts. Needs python3-torch."""
import os, sys, numpy as np, torch
sys.path.insert(0,os.path.dirname(os.path.abspath(__file__)))
import st, ref
from make_golden import std_case, llama_cfg, gpt2_cfg, llama_names, gpt2_names, init, batches, ctx, dump, N, total_loss
CASES=dict(
    llama3_rope=(llama_cfg(hidden_size=24,head_dim=16,num_attention_heads=4,num_key_value_heads=2,intermediate_size=56,rope_theta=500000.0,max_position_embeddings=128,rope_scaling=dict(rope_type='llama3',factor=8.0,low_freq_factor=1.0,high_freq_factor=4.0,original_max_position_embeddings=16)),41,2,48),
    qwen2_bias=(llama_cfg(architectures=['Qwen2ForCausalLM'],model_type='qwen2',num_key_value_heads=2,tie_word_embeddings=True,rope_theta=1e6,rms_norm_eps=1e-6),61,3,16),
    llama_all_bias=(llama_cfg(attention_bias=True,mlp_bias=True,num_key_value_heads=1,rope_scaling=dict(rope_type='linear',factor=3.0)),71,2,17),
    mistral_window=(llama_cfg(architectures=['MistralForCausalLM'],model_type='mistral',sliding_window=5,num_key_value_heads=2,head_dim=12),81,2,19),
    qwen2_moe_shared=(llama_cfg(architectures=['Qwen2MoeForCausalLM'],model_type='qwen2_moe',num_hidden_layers=3,num_key_value_heads=2,rms_norm_eps=1e-6,num_experts=6,num_experts_per_tok=3,moe_intermediate_size=20,shared_expert_intermediate_size=28,norm_topk_prob=False,decoder_sparse_step=1,mlp_only_layers=[1],router_aux_loss_coef=0.05,use_sliding_window=False),211,3,16),
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
# Microbatches with unequal numbers of trained tokens: 22, 6, 1 and 14 of them, one row with none; the loss is over all tokens.
c=llama_cfg(num_key_value_heads=2); d=ctx('grad_accum_uneven'); W=init(llama_names(c),111); dump(d+'/config.json',c); st.save(d+'/model.safetensors',W,{'format':'pt'})
x=batches(112,1,8,12,c['vocab_size'])[0]; y=np.full_like(x,-100)
for m,keep in enumerate((11,3,1,7)): y[2*m:2*m+2,12-keep:]=x[2*m:2*m+2,12-keep:]
y[5]=-100
w={k:torch.tensor(v,dtype=torch.float64,requires_grad=True) for k,v in W.items()}
tot,lm,aux,lg,ex,n=total_loss(c,w,torch.tensor(x),torch.tensor(y)); g=torch.autograd.grad(tot,list(w.values()))
st.save(d+'/grads_f64.safetensors',{k:N(v) for k,v in zip(w,g)}); st.save(d+'/batch.safetensors',{'input_ids':x,'labels':y}); dump(d+'/expected.json',{'f64':{'loss':float(tot),'tokens':n}})
# Low-rank adapters under their PEFT names. The effective weight W + scale B A is given to the plain forward pass: the same function, by another road than the trainer's. GPT-2's Conv1D holds W transposed.
def train(d,c,W,names,build,steps,B,S,seed,extra):
    """Ten AdamW steps on the tensors `names` of W; build(w) makes the model's weights of them."""
    w={k:torch.tensor(v,dtype=torch.float64,requires_grad=k in names) for k,v in W.items()}; t={k:w[k] for k in names}; opt=ref.AdamW(t); tr=[]
    x=batches(seed,steps,B,S,c['vocab_size']); st.save(d+'/batches.safetensors',{'input_ids':x,'labels':x})
    for i in range(steps):
        tot,lm,aux,lg,ex,n=total_loss(c,build(w),torch.tensor(x[i]),torch.tensor(x[i])); g=dict(zip(t,torch.autograd.grad(tot,list(t.values()))))
        if i==0: st.save(d+'/grads_f64.safetensors',{k:N(v) for k,v in g.items()})
        nrm,lr,sc=opt.step(t,g,lambda k,p:p.dim()>=2); tr.append(dict(step=i,loss=float(tot),tokens=n,grad_norm=nrm,clip_scale=sc,lr=lr))
    st.save(d+'/after10_f64.safetensors',{k:N(v) for k,v in t.items()}); dump(d+'/train.json',{'hyper':ref.HP,**extra,'trace':{'f64':tr}}); print(os.path.basename(d),len(t),[round(q['loss'],4) for q in tr]); return w
def lora(case,c,targets,r,alpha,seed,B,S,rslora=False,std=0.12,also=()):
    d=ctx(case); gpt2=c['model_type']=='gpt2'; names=gpt2_names(c) if gpt2 else llama_names(c); W=init(names,seed,std); dump(d+'/config.json',c); st.save(d+'/model.safetensors',W,{'format':'pt'})
    rs=np.random.RandomState(seed+1); A={}; mods=[k[:-7] for k in W if any(k.endswith('.'+t+'.weight') for t in targets)]; scale=alpha/(r**0.5 if rslora else r)
    for m in mods:
        i,o=W[m+'.weight'].shape if gpt2 else W[m+'.weight'].shape[::-1]
        A['base_model.model.'+m+'.lora_A.weight']=(rs.uniform(-1,1,(r,i))/i**0.5).astype(np.float32); A['base_model.model.'+m+'.lora_B.weight']=(0.1*rs.standard_normal((o,r))).astype(np.float32)
    # What is trained whole beside the adapters (PEFT's modules_to_save) begins apart from the base; of a tied model the folder has it as the head too.
    whole={k:(W[k]+0.05*rs.standard_normal(W[k].shape)).astype(np.float32) for k in W if any(k.rsplit('.',1)[0].endswith(m) for m in also)}; P={'base_model.model.'+k:v for k,v in whole.items()}
    if whole and c['tie_word_embeddings']: P['base_model.model.lm_head.weight']=next(v for k,v in whole.items() if k.endswith(('embed_tokens.weight','wte.weight')))
    st.save(d+'/adapter_model.safetensors',{**A,**P},{'format':'pt'})
    dump(d+'/adapter_config.json',dict(peft_type='LORA',task_type='CAUSAL_LM',r=r,lora_alpha=alpha,lora_dropout=0.0,bias='none',target_modules=targets,fan_in_fan_out=gpt2,use_rslora=rslora,**({'modules_to_save':list(also)} if also else {}),inference_mode=False,base_model_name_or_path='.'))
    def build(w):
        e={k:w[k] for k in W}
        for m in mods: p=w['base_model.model.'+m+'.lora_B.weight']@w['base_model.model.'+m+'.lora_A.weight']*scale; e[m+'.weight']=e[m+'.weight']+(p.T if gpt2 else p)
        return e
    w=train(d,c,{**W,**A,**whole},[*A,*whole],build,10,B,S,seed+2,{'scale':scale}); e=build(w); st.save(d+'/merged_after10_f64.safetensors',{m+'.weight':N(e[m+'.weight']) for m in mods})
lora('lora_all_linear_r3',llama_cfg(num_key_value_heads=2,tie_word_embeddings=True),['q_proj','k_proj','v_proj','o_proj','gate_proj','up_proj','down_proj'],3,16,121,3,14)
lora('lora_gpt2_conv1d',gpt2_cfg(),['c_attn','c_proj','c_fc'],5,10,131,2,15,std=0.08)
lora('lora_rslora_qwen2',llama_cfg(architectures=['Qwen2ForCausalLM'],model_type='qwen2',num_key_value_heads=2,tie_word_embeddings=True,rope_theta=1e6,rms_norm_eps=1e-6),['k_proj','up_proj'],4,6,141,2,16,rslora=True)
lora('lora_also_tied',llama_cfg(num_key_value_heads=2,tie_word_embeddings=True),['q_proj','down_proj'],3,6,181,2,14,also=['embed_tokens','lm_head','input_layernorm'])
lora('lora_also_untied',llama_cfg(num_key_value_heads=2),['v_proj','up_proj'],2,4,191,2,13,also=['embed_tokens','lm_head','model.norm'])
lora('lora_also_gpt2',gpt2_cfg(),['c_attn'],4,8,201,2,15,std=0.08,also=['wte','lm_head','ln_1','ln_f'])
# Frozen parts: `freeze` in train.json has the patterns of a request; what they leave is trained.
def frozen(case,c,seed,B,S,freeze,left,std=0.12):
    d=ctx(case); W=init(gpt2_names(c) if c['model_type']=='gpt2' else llama_names(c),seed,std); dump(d+'/config.json',c); st.save(d+'/model.safetensors',W,{'format':'pt'})
    train(d,c,W,[k for k in W if left(k)],lambda w:w,10,B,S,seed+1,{'freeze':freeze})
frozen('freeze_below',llama_cfg(num_hidden_layers=4,num_key_value_heads=2),155,2,16,'model.embed_tokens, model.layers.0, model.layers.1, model.layers.2.self_attn.k_proj, *.3.mlp.up_proj.weight, *norm.weight',lambda k:not(k.startswith(('model.embed_tokens','model.layers.0','model.layers.1','model.layers.2.self_attn.k_proj')) or k.endswith(('.3.mlp.up_proj.weight','norm.weight'))))
frozen('freeze_gpt2',gpt2_cfg(),161,2,15,'transformer.wpe,transformer.h.0.ln_1,transformer.h.*.attn.c_attn.bias,transformer.h.1.mlp.c_fc.weight',lambda k:not(k.startswith(('transformer.wpe','transformer.h.0.ln_1')) or k.endswith('c_attn.bias') or k=='transformer.h.1.mlp.c_fc.weight'),std=0.08)
frozen('freeze_all_but_head',llama_cfg(),171,2,12,'model',lambda k:k=='lm_head.weight')
