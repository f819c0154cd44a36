#!/usr/bin/env python3
import sys, os, json, math, numpy as np, torch
sys.path.insert(0,os.path.dirname(os.path.abspath(__file__)))
import st, ref
OUT=os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)),'..'))
N=lambda t:t.detach().numpy()
def init(names,seed,std=0.12):
    r=np.random.RandomState(seed); o={}
    for n,s in names:
        if n.endswith('norm.weight') or 'layernorm' in n or '.ln_' in n and n.endswith('weight'): a=1+0.1*r.standard_normal(s)
        elif n.endswith('bias'): a=0.05*r.standard_normal(s)
        else: a=std*r.standard_normal(s)
        o[n]=a.astype(np.float32)
    return o
def gpt2_names(c):
    E=c['n_embd']; I=c['n_inner'] or 4*E; L=[('transformer.wte.weight',(c['vocab_size'],E)),('transformer.wpe.weight',(c['n_positions'],E))]
    for l in range(c['n_layer']):
        p=f'transformer.h.{l}.'
        L+=[(p+'ln_1.weight',(E,)),(p+'ln_1.bias',(E,)),(p+'attn.c_attn.weight',(E,3*E)),(p+'attn.c_attn.bias',(3*E,)),(p+'attn.c_proj.weight',(E,E)),(p+'attn.c_proj.bias',(E,)),(p+'ln_2.weight',(E,)),(p+'ln_2.bias',(E,)),(p+'mlp.c_fc.weight',(E,I)),(p+'mlp.c_fc.bias',(I,)),(p+'mlp.c_proj.weight',(I,E)),(p+'mlp.c_proj.bias',(E,))]
    return L+[('transformer.ln_f.weight',(E,)),('transformer.ln_f.bias',(E,))]
def llama_names(c):
    E,I,H,KV,hd,V=c['hidden_size'],c['intermediate_size'],c['num_attention_heads'],c['num_key_value_heads'],c['head_dim'],c['vocab_size']; L=[('model.embed_tokens.weight',(V,E))]
    for l in range(c['num_hidden_layers']):
        p=f'model.layers.{l}.'
        L+=[(p+'input_layernorm.weight',(E,)),(p+'self_attn.q_proj.weight',(H*hd,E)),(p+'self_attn.k_proj.weight',(KV*hd,E)),(p+'self_attn.v_proj.weight',(KV*hd,E)),(p+'self_attn.o_proj.weight',(E,H*hd)),(p+'post_attention_layernorm.weight',(E,))]
        if c['attention_bias'] or c['model_type'] in ('qwen2','qwen2_moe'): L+=[(p+'self_attn.q_proj.bias',(H*hd,)),(p+'self_attn.k_proj.bias',(KV*hd,)),(p+'self_attn.v_proj.bias',(KV*hd,))]
        if c['model_type']=='qwen3_moe': L+=[(p+'self_attn.q_norm.weight',(hd,)),(p+'self_attn.k_norm.weight',(hd,))]
        if c['attention_bias']: L.append((p+'self_attn.o_proj.bias',(E,)))
        if c['mlp_bias']: L+=[(p+'mlp.gate_proj.bias',(I,)),(p+'mlp.up_proj.bias',(I,)),(p+'mlp.down_proj.bias',(E,))]
        if 'num_local_experts' in c:
            L.append((p+'block_sparse_moe.gate.weight',(c['num_local_experts'],E)))
            for e in range(c['num_local_experts']):
                q=p+f'block_sparse_moe.experts.{e}.'; L+=[(q+'w1.weight',(I,E)),(q+'w2.weight',(E,I)),(q+'w3.weight',(I,E))]
        elif 'num_experts' in c and l not in c['mlp_only_layers']:
            X,Y=c['moe_intermediate_size'],c.get('shared_expert_intermediate_size',0); L.append((p+'mlp.gate.weight',(c['num_experts'],E)))
            for q,n in [(p+f'mlp.experts.{e}.',X) for e in range(c['num_experts'])]+[(p+'mlp.shared_expert.',Y)]*(Y>0): L+=[(q+'gate_proj.weight',(n,E)),(q+'up_proj.weight',(n,E)),(q+'down_proj.weight',(E,n))]
            if Y: L.append((p+'mlp.shared_expert_gate.weight',(1,E)))
        else: L+=[(p+'mlp.gate_proj.weight',(I,E)),(p+'mlp.up_proj.weight',(I,E)),(p+'mlp.down_proj.weight',(E,I))]
    L.append(('model.norm.weight',(E,)))
    if not c['tie_word_embeddings']: L.append(('lm_head.weight',(V,E)))
    return L
def gpt2_cfg(**k):
    c=dict(architectures=['GPT2LMHeadModel'],model_type='gpt2',activation_function='gelu_new',n_embd=32,n_head=4,n_layer=2,n_positions=32,n_inner=None,vocab_size=97,layer_norm_epsilon=1e-5,attn_pdrop=0.0,embd_pdrop=0.0,resid_pdrop=0.0,tie_word_embeddings=True,scale_attn_weights=True,bos_token_id=0,eos_token_id=0,torch_dtype='float32'); c.update(k); return c
def llama_cfg(**k):
    c=dict(architectures=['LlamaForCausalLM'],model_type='llama',hidden_size=32,intermediate_size=64,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=4,head_dim=8,vocab_size=96,max_position_embeddings=64,rms_norm_eps=1e-5,rope_theta=10000.0,rope_scaling=None,tie_word_embeddings=False,attention_bias=False,mlp_bias=False,hidden_act='silu',bos_token_id=1,eos_token_id=2,torch_dtype='float32'); c.update(k); return c
def mixtral_cfg(**k):
    c=llama_cfg(architectures=['MixtralForCausalLM'],model_type='mixtral',num_local_experts=8,num_experts_per_tok=2,router_aux_loss_coef=0.02,router_jitter_noise=0.0,output_router_logits=True,sliding_window=None,rope_theta=1e6,num_key_value_heads=2,intermediate_size=24); c.update(k); return c
def batches(seed,steps,B,S,V,pattern=True):
    r=np.random.RandomState(seed); x=r.randint(0,V,(steps,B,S))
    if pattern:      # make it learnable: second half repeats the first half shifted by one
        h=S//2; x[:,:,h:2*h]=(x[:,:,:h]+1)%V
    return x.astype(np.int64)
decay=lambda k,p:p.dim()>=2
def ctx(case): d=os.path.join(OUT,case); os.makedirs(d,exist_ok=True); return d
def dump(path,o): json.dump(o,open(path,'w'),indent=1)
def model_of(c): return ref.gpt2 if c['model_type']=='gpt2' else ref.llama
def total_loss(c,w,ids,labels,**kw):
    lg,ex=model_of(c)(w,c,ids,**kw); s,n=ref.token_nll(lg,labels); lm=s/n; tot=lm; aux=None
    if ex.get('router_logits'):
        aux=ref.aux_loss(ex['router_logits'],c.get('num_local_experts') or c['num_experts'],c['num_experts_per_tok']); tot=lm+c['router_aux_loss_coef']*aux
    return tot,lm,aux,lg,ex,n
def std_case(case,c,seed,B,S,steps=10,std=0.12,labels=None,extra_meta=None):
    d=ctx(case); names=gpt2_names(c) if c['model_type']=='gpt2' else llama_names(c); W=init(names,seed,std); dump(d+'/config.json',c)
    st.save(d+'/model.safetensors',W,{'format':'pt'}); x=batches(seed+1,steps,B,S,c['vocab_size']); y=x.copy() if labels is None else labels(x)
    st.save(d+'/batches.safetensors',{'input_ids':x,'labels':y}); info={'hyper':ref.HP,'decay_rule':'ndim>=2','trace':{}}
    for tag,dt in (('f64',torch.float64),('f32',torch.float32)):
        w={k:torch.tensor(v,dtype=dt,requires_grad=True) for k,v in W.items()}; opt=ref.AdamW(w); tr=[]
        for t in range(steps):
            tot,lm,aux,lg,ex,n=total_loss(c,w,torch.tensor(x[t]),torch.tensor(y[t])); g=dict(zip(w,torch.autograd.grad(tot,list(w.values()),allow_unused=True)))
            g={k:(v if v is not None else torch.zeros_like(w[k])) for k,v in g.items()}
            if t==0:
                o={'logits':N(lg)}
                if aux is not None:
                    for l,r in enumerate(ex['router_logits']):
                        o[f'router_logits.{l}']=N(r); p=torch.softmax(r,-1); tv,ti=torch.topk(p,c['num_experts_per_tok'],-1); o[f'router_topk_index.{l}']=N(ti); o[f'router_topk_weight.{l}']=N(tv/tv.sum(-1,keepdim=True))
                st.save(f'{d}/step0_{tag}.safetensors',o); st.save(f'{d}/grads_{tag}.safetensors',{k:N(v) for k,v in g.items()})
            nrm,lr,sc=opt.step(w,g,decay); tr.append(dict(step=t,loss=float(tot),lm_loss=float(lm),aux_loss=None if aux is None else float(aux),tokens=n,grad_norm=nrm,clip_scale=sc,lr=lr))
        with torch.no_grad(): info.setdefault('final_loss_on_batch0',{})[tag]=float(total_loss(c,w,torch.tensor(x[0]),torch.tensor(y[0]))[0])
        st.save(f'{d}/after{steps}_{tag}.safetensors',{k:N(v) for k,v in w.items()}); info['trace'][tag]=tr
    if extra_meta: info.update(extra_meta)
    dump(d+'/train.json',info); a,b=info['trace']['f64'],info['trace']['f32']
    print(case,'params',sum(v.size for v in W.values()),'loss0',a[0]['loss'],'lossN',a[-1]['loss'],'norms',[round(q['grad_norm'],3) for q in a],'max f32-f64 loss diff',max(abs(p['loss']-q['loss']) for p,q in zip(a,b)))
    return W
