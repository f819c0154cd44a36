"""Reference forwards in plain torch (functional, HF parameter names). Written from the published equations, no library model code."""
import math, torch, torch.nn.functional as F
torch.set_num_threads(1)
# ---------------------------------------------------------------- GPT-2
def gpt2(w,c,ids,**k):
    B,S=ids.shape; H=c['n_head']; E=c['n_embd']; hd=E//H; eps=c['layer_norm_epsilon']
    x=w['transformer.wte.weight'][ids]+w['transformer.wpe.weight'][torch.arange(S)]
    mask=torch.tril(torch.ones(S,S,dtype=torch.bool))
    def ln(x,n):
        m=x.mean(-1,keepdim=True); v=((x-m)**2).mean(-1,keepdim=True); return (x-m)/torch.sqrt(v+eps)*w[n+'.weight']+w[n+'.bias']
    for l in range(c['n_layer']):
        p=f'transformer.h.{l}.'
        h=ln(x,p+'ln_1')@w[p+'attn.c_attn.weight']+w[p+'attn.c_attn.bias']      # Conv1D: [in,out]
        q,kk,v=[t.reshape(B,S,H,hd).transpose(1,2) for t in h.split(E,-1)]
        s=(q@kk.transpose(-1,-2))/math.sqrt(hd); s=s.masked_fill(~mask,float('-inf')); o=torch.softmax(s,-1)@v
        x=x+o.transpose(1,2).reshape(B,S,E)@w[p+'attn.c_proj.weight']+w[p+'attn.c_proj.bias']
        h=ln(x,p+'ln_2')@w[p+'mlp.c_fc.weight']+w[p+'mlp.c_fc.bias']
        h=0.5*h*(1+torch.tanh(math.sqrt(2/math.pi)*(h+0.044715*h**3))) if c['activation_function']=='gelu_new' else 0.5*h*(1+torch.erf(h/math.sqrt(2)))
        x=x+h@w[p+'mlp.c_proj.weight']+w[p+'mlp.c_proj.bias']
    x=ln(x,'transformer.ln_f')
    return x@w['transformer.wte.weight'].T, {}
# ---------------------------------------------------------------- Llama / Mixtral
def inv_freq(c):
    hd=c['head_dim']; inv=1.0/(c['rope_theta']**(torch.arange(0,hd,2,dtype=torch.float64)/hd)); r=c.get('rope_scaling')
    if r and r['rope_type']=='linear': inv=inv/r['factor']
    if r and r['rope_type']=='llama3':
        f,lo,hi,old=r['factor'],r['low_freq_factor'],r['high_freq_factor'],r['original_max_position_embeddings']
        out=[]
        for v in inv.tolist():
            wl=2*math.pi/v
            if wl>old/lo: out.append(v/f)
            elif wl<old/hi: out.append(v)
            else:
                s=(old/wl-lo)/(hi-lo); out.append((1-s)*v/f+s*v)
        inv=torch.tensor(out,dtype=torch.float64)
    return inv
def rope(x,cos,sin):  # x [B,h,S,hd]; halves layout
    h=x.shape[-1]//2; a,b=x[...,:h],x[...,h:]
    return torch.cat([a*cos-b*sin, b*cos+a*sin],-1)
def rms(x,g,eps): return x/torch.sqrt((x*x).mean(-1,keepdim=True)+eps)*g
def lin(w,n,x,lora=None):
    y=x@w[n+'.weight'].T
    if n+'.bias' in w: y=y+w[n+'.bias']
    if lora and n in lora['mods']:
        y=y+(x@w['lora_A:'+n].T)@w['lora_B:'+n].T*lora['scale']
    return y
def llama(w,c,ids,pos=None,segs=None,lora=None,attn_mask=None):
    """pos [B,S] position ids (default arange); segs [B,S] document ids: attention only inside one document; attn_mask [B,S] 1=real 0=pad"""
    dt=w['model.norm.weight'].dtype; B,S=ids.shape; H,KV,hd=c['num_attention_heads'],c['num_key_value_heads'],c['head_dim']; eps=c['rms_norm_eps']
    if pos is None: pos=torch.arange(S).expand(B,S)
    ang=pos.to(torch.float64)[...,None]*inv_freq(c); cos,sin=ang.cos().to(dt)[:,None],ang.sin().to(dt)[:,None]
    m=torch.tril(torch.ones(S,S,dtype=torch.bool)).expand(B,S,S).clone()
    if segs is not None: m&=segs[:,:,None]==segs[:,None,:]
    if attn_mask is not None: m&=attn_mask[:,None,:].bool()
    if c.get('sliding_window'): m&=torch.arange(S)[None,:]>torch.arange(S)[:,None]-c['sliding_window']
    m=m|torch.eye(S,dtype=torch.bool)        # a row never ends up empty (pad rows)
    x=w['model.embed_tokens.weight'][ids]; ex={'router_logits':[]}
    for l in range(c['num_hidden_layers']):
        p=f'model.layers.{l}.'; h=rms(x,w[p+'input_layernorm.weight'],eps)
        q=lin(w,p+'self_attn.q_proj',h,lora).reshape(B,S,H,hd).transpose(1,2); k=lin(w,p+'self_attn.k_proj',h,lora).reshape(B,S,KV,hd).transpose(1,2); v=lin(w,p+'self_attn.v_proj',h,lora).reshape(B,S,KV,hd).transpose(1,2)
        if p+'self_attn.q_norm.weight' in w: q,k=rms(q,w[p+'self_attn.q_norm.weight'],eps),rms(k,w[p+'self_attn.k_norm.weight'],eps)
        q,k=rope(q,cos,sin),rope(k,cos,sin); k=k.repeat_interleave(H//KV,1); v=v.repeat_interleave(H//KV,1)
        s=q@k.transpose(-1,-2)/math.sqrt(hd); s=s.masked_fill(~m[:,None],float('-inf')); o=torch.softmax(s,-1)@v
        x=x+lin(w,p+'self_attn.o_proj',o.transpose(1,2).reshape(B,S,H*hd),lora)
        h=rms(x,w[p+'post_attention_layernorm.weight'],eps)
        if 'num_local_experts' in c:
            E,K=c['num_local_experts'],c['num_experts_per_tok']; f=h.reshape(B*S,-1); g=f@w[p+'block_sparse_moe.gate.weight'].T; ex['router_logits'].append(g)
            pr=torch.softmax(g,-1); tv,ti=torch.topk(pr,K,-1); tv=tv/tv.sum(-1,keepdim=True)
            y=torch.zeros_like(f)
            for e in range(E):
                q_=p+f'block_sparse_moe.experts.{e}.'; t,kk=torch.where(ti==e)
                if len(t)==0: continue
                z=f[t]; z=(F.silu(z@w[q_+'w1.weight'].T)*(z@w[q_+'w3.weight'].T))@w[q_+'w2.weight'].T
                y=y.index_add(0,t,z*tv[t,kk,None])
            x=x+y.reshape(B,S,-1)
        elif p+'mlp.gate.weight' in w:      # Qwen: weights renormalised or not, and an MLP for all tokens behind a gate
            E,K=c['num_experts'],c['num_experts_per_tok']; f=h.reshape(B*S,-1); g=f@w[p+'mlp.gate.weight'].T; ex['router_logits'].append(g)
            glu=lambda z,n: (F.silu(z@w[n+'gate_proj.weight'].T)*(z@w[n+'up_proj.weight'].T))@w[n+'down_proj.weight'].T
            tv,ti=torch.topk(torch.softmax(g,-1),K,-1); tv=tv/tv.sum(-1,keepdim=True) if c['norm_topk_prob'] else tv; y=torch.zeros_like(f)
            for e in range(E): t,kk=torch.where(ti==e); y=y.index_add(0,t,glu(f[t],p+f'mlp.experts.{e}.')*tv[t,kk,None])
            if p+'mlp.shared_expert_gate.weight' in w: y=y+torch.sigmoid(f@w[p+'mlp.shared_expert_gate.weight'].T)*glu(f,p+'mlp.shared_expert.')
            x=x+y.reshape(B,S,-1)
        else:
            x=x+lin(w,p+'mlp.down_proj',F.silu(lin(w,p+'mlp.gate_proj',h,lora))*lin(w,p+'mlp.up_proj',h,lora),lora)
    x=rms(x,w['model.norm.weight'],eps)
    W=w['model.embed_tokens.weight'] if c['tie_word_embeddings'] else w['lm_head.weight']
    return x@W.T, ex
def aux_loss(rl,E,K):
    """HF load balancing loss: layers concatenated on the token axis, fractions per top-k slot"""
    p=torch.softmax(torch.cat(rl,0),-1); _,s=torch.topk(p,K,-1); m=F.one_hot(s,E).to(p.dtype)   # T,K,E
    return E*(m.mean(0)*p.mean(0)[None]).sum()
def token_nll(logits,labels):
    """HF shift: logits[:, :-1] vs labels[:,1:]; returns (sum nll, count) over labels != -100"""
    lg=logits[:,:-1].reshape(-1,logits.shape[-1]); lb=labels[:,1:].reshape(-1); m=lb!=-100
    ls=torch.log_softmax(lg[m],-1); return -ls[torch.arange(int(m.sum())),lb[m]].sum(), int(m.sum())
def seq_logp(logits,labels):
    """sum of log p over labels != -100 per row (DPO)"""
    ls=torch.log_softmax(logits[:,:-1],-1); lb=labels[:,1:]; m=lb!=-100
    return (ls.gather(-1,lb.clamp(min=0)[...,None])[...,0]*m).sum(-1)
# ---------------------------------------------------------------- optimizer
HP=dict(max_lr=1e-2,min_lr=1e-3,warmup=3,total=10,beta1=0.9,beta2=0.95,eps=1e-8,weight_decay=0.1,clip=1.0)
def lr_at(t,h=HP):
    if t<h['warmup']: return h['max_lr']*(t+1)/h['warmup']
    return h['min_lr']+0.5*(h['max_lr']-h['min_lr'])*(1+math.cos(math.pi*(t-h['warmup'])/(h['total']-h['warmup'])))
class AdamW:
    def __init__(s,params,h=HP): s.h=h; s.m={k:torch.zeros_like(v) for k,v in params.items()}; s.v={k:torch.zeros_like(v) for k,v in params.items()}; s.t=0
    def step(s,params,grads,decay):
        h=s.h; lr=lr_at(s.t,h); s.t+=1
        n=math.sqrt(sum(float((g.double()**2).sum()) for g in grads.values())); sc=min(1.0,h['clip']/(n+1e-6)) if h['clip'] else 1.0
        b1,b2=1-h['beta1']**s.t,1-h['beta2']**s.t
        with torch.no_grad():
            for k,p in params.items():
                g=grads[k]*sc
                if decay(k,p): p.mul_(1-lr*h['weight_decay'])
                s.m[k].mul_(h['beta1']).add_(g,alpha=1-h['beta1']); s.v[k].mul_(h['beta2']).addcmul_(g,g,value=1-h['beta2'])
                p.addcdiv_(s.m[k]/b1,(s.v[k]/b2).sqrt().add_(h['eps']),value=-lr)
        return n,lr,sc
